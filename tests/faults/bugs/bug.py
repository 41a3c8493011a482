"""A queue with one bug."""

from collections.abc import Callable
from random import Random
from typing import ClassVar

from penstock.model.message import Verb
from tests.checker import Kind
from tests.conformance.model.items import Item
from tests.faults.queue import SimulatedQueue, Token


class Bug(SimulatedQueue):
    """It strikes wherever its effect can be seen in the history; `breaks` must be found then."""

    breaks: ClassVar[Kind]

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.strikes: list[tuple[Token | None, Callable[[], bool]]] = []
        # By message: a moment, and the call that made the bug's mark.
        self.marks: dict[int, tuple[int, Token | None]] = {}

    def strike(self, told: bool = False, provided: Callable[[], bool] = lambda: True) -> None:
        """A bug had an effect; `told`: if the caller has the answer, `provided`: if that holds."""
        if not told or self.token:
            self.strikes.append((self.token if told else None, provided))

    @property
    def struck(self) -> bool:
        """Some effect of the bug can be seen in the history."""
        return any((token is None or token in self.told) and so() for token, so in self.strikes)

    def known(self, token: Token | None) -> bool:
        """Its caller has the answer, and had it before any call now arriving was made."""
        return token is not None and self.told.get(token, self.now) < self.now - 20_000

    def is_held_by_known(self, item: Item) -> bool:
        return self.known(self.holders.get(item.id))

    def sometimes(self, share: float = 0.2) -> bool:
        return self.random.random() < share

    def untouched(self, item: Item) -> bool:
        return not self.asked["redrive", item.id, 0]

    def clean(self, item: Item) -> bool:
        """One complete ended it, asked for once; whether a copy keeps its key is not promised."""
        row = item.timeline[-1] if item.timeline else None
        if row is None or row.verb is not Verb.COMPLETE or item.draft.parent_id is not None:
            return False
        if not self.untouched(item):
            return False
        return self.asked["complete", item.id, row.fence or 0] == 1
