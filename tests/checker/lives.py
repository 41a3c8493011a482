"""Gathers all that is known of each message."""

from collections import defaultdict
from functools import cached_property

from msgspec import Struct

from .events import Cancel, Claim, Claimed, Publish, Queue, Redrive, Row, Settle, Signal, Stored
from .history import History, Operation

ENDING = frozenset({"complete", "nack", "reject", "fail", "release", "park", "cancel", "wait"})


class Delivery(Struct, frozen=True, gc=False):
    """One message handed out by one claim."""

    handed: Claimed
    claim: Operation[Claim]

    @property
    def fence(self) -> int:
        return self.handed.fence

    @property
    def text(self) -> str:
        return f"claim {self.claim.name} (fence {self.fence})"


class Life:
    """All that is known of one message; deliveries are in fence order."""

    def __init__(self, id: int) -> None:
        self.id = id
        self.publishes: list[Operation[Publish]] = []
        self.deliveries: list[Delivery] = []
        self.settles: list[Operation[Settle]] = []
        self.cancels: list[Operation[Cancel]] = []
        self.signals: list[Operation[Signal]] = []
        self.redrives: list[Operation[Redrive]] = []
        self.stored: Stored | None = None
        self.child = False

    @property
    def labels(self) -> set[str]:
        found = {delivery.handed.label for delivery in self.deliveries}
        return found | {self.stored.label} if self.stored else found

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.stored.rows if self.stored else ()

    @property
    def queue(self) -> str:
        """Empty when nobody named it."""
        if self.publishes:
            return self.publishes[0].call.queue
        return self.stored.queue if self.stored else ""

    @property
    def redriven(self) -> bool:
        return any(redrive.possible for redrive in self.redrives)

    @cached_property
    def ends(self) -> dict[int, list[Operation[Settle]]]:
        """By fence: the calls that may have ended that delivery."""
        found: dict[int, list[Operation[Settle]]] = defaultdict(list)
        for settle in self.settles:
            if settle.call.verb in ENDING and settle.possible:
                found[settle.call.fence].append(settle)
        return found

    @cached_property
    def rows_by_fence(self) -> dict[int, list[Row]]:
        found: dict[int, list[Row]] = defaultdict(list)
        for row in self.rows:
            if row.fence:
                found[row.fence].append(row)
        return found

    @cached_property
    def borders(self) -> list[int]:
        """For each redrive in place, the highest fence before it."""
        found, highest = [], 0
        for row in self.rows:
            if row.verb == "redrive":
                found.append(highest)
            highest = max(highest, row.fence or 0)
        return found

    def turn(self, fence: int) -> int:
        """How many redrives in place came before this fence."""
        return sum(fence > border for border in self.borders)


class Evidence:
    """A history, sorted by message and by label."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.plan = history.plan
        self.dumped = history.end is not None
        self.lives: dict[int, Life] = {}
        self.labels: dict[str, list[Operation[Publish]]] = defaultdict(list)
        self.found: dict[str, set[int]] = defaultdict(set)
        self._add_calls()
        self._add_stored()
        self._name_children()
        self._join_labels()

    def life(self, id: int) -> Life:
        if id not in self.lives:
            self.lives[id] = Life(id)
        return self.lives[id]

    def settings(self, life: Life) -> Queue:
        return self.history.queue(life.queue)

    def _add_calls(self) -> None:
        for claim in self.history.claims:
            for handed in claim.answer.claims:
                self.life(handed.id).deliveries.append(Delivery(handed, claim))
        for life in self.lives.values():
            life.deliveries.sort(key=lambda delivery: delivery.fence)
        for settle in self.history.settles:
            self.life(settle.call.id).settles.append(settle)
        for cancel in self.history.cancels:
            self.life(cancel.call.id).cancels.append(cancel)
        for signal in self.history.signals:
            self.life(signal.call.id).signals.append(signal)
        for redrive in self.history.redrives:
            self.life(redrive.call.id).redrives.append(redrive)

    def _add_stored(self) -> None:
        for stored in self.history.stored:
            self.life(stored.id).stored = stored

    def _name_children(self) -> None:
        for redrive in self.history.redrives:
            if redrive.answer.id not in (None, redrive.call.id):
                self.life(redrive.answer.id or 0).child = True
        for life in self.lives.values():
            life.child = life.child or bool(life.stored and life.stored.parent)

    def _join_labels(self) -> None:
        for publish in self.history.publishes:
            self.labels[publish.call.label].append(publish)
            if publish.accepted and publish.answer.id and not publish.answer.duplicate:
                self.found[publish.call.label].add(publish.answer.id)
        for life in self.lives.values():
            for label in life.labels:
                life.publishes += self.labels.get(label, [])
                if not life.child:
                    self.found[label].add(life.id)
