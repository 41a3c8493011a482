"""Fault injection: a store that fails on demand, before or after an operation."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal, ParamSpec, TypeVar, cast

from msgspec import Struct

from penstock.errors import InvalidInput
from penstock.store import Store

When = Literal["before", "after"]
P = ParamSpec("P")
R = TypeVar("R")


class Fault(Struct, frozen=True):
    """Raises `error` before or after call number `call` of a verb, or of all verbs together."""

    when: When
    verb: str | None
    call: int
    error: Exception


class Faults:
    """Chooses the calls of a store that fail. Calls count and fail only while it is armed."""

    def __init__(self, *planned: Fault, armed: bool = True) -> None:
        self.planned = list(planned)
        self.fired: list[Fault] = []
        self.calls: list[str] = []
        self.counts: Counter[str | None] = Counter()
        self.is_armed = armed
        self.away: Exception | None = None

    def wrap(self, store: Store) -> Store:
        # Its verbs are those of the store it wraps, by `__getattr__`.
        return cast(Store, FaultyStore(store, self))

    def before(self, verb: str, error: Exception, *, call: int = 1) -> None:
        """Makes the call-th call from now raise without any effect."""
        self._plan("before", verb, error, call)

    def after(self, verb: str, error: Exception, *, call: int = 1) -> None:
        """Makes the call-th call from now take effect and raise, as if its response was lost."""
        self._plan("after", verb, error, call)

    def _plan(self, when: When, verb: str, error: Exception, call: int) -> None:
        if not hasattr(Store, verb):
            raise InvalidInput(f"a store has no verb {verb!r}")
        self.planned.append(Fault(when, verb, self.counts[verb] + call, error))

    @contextmanager
    def outage(self, error: Exception) -> Iterator[None]:
        """Makes every call raise without any effect."""
        self.away = error
        try:
            yield
        finally:
            self.away = None

    @contextmanager
    def armed(self) -> Iterator[None]:
        self.is_armed = True
        try:
            yield
        finally:
            self.is_armed = False

    @classmethod
    def every_call(cls, error: Exception) -> Iterator["Faults"]:
        """Yields faults for a sweep of crash points. Run the same steps once with each.

        The first only counts calls. Then each call fails, once before and once after it. Only
        calls inside `with faults.armed():` count.
        """
        clean = cls(armed=False)
        yield clean
        for call in range(1, len(clean.calls) + 1):
            yield cls(Fault("before", None, call, error), armed=False)
            yield cls(Fault("after", None, call, error), armed=False)

    async def call(
        self, verb: str, method: Callable[P, Awaitable[R]], *args: P.args, **kwargs: P.kwargs
    ) -> R:
        if self.away is not None:
            raise self.away
        if not self.is_armed:
            return await method(*args, **kwargs)
        self.calls.append(verb)
        self.counts.update((verb, None))
        numbers = {verb: self.counts[verb], None: self.counts[None]}
        self._raise("before", numbers)
        answer = await method(*args, **kwargs)
        self._raise("after", numbers)
        return answer

    def _raise(self, when: When, numbers: dict[str | None, int]) -> None:
        for fault in self.planned:
            if fault.when == when and numbers.get(fault.verb) == fault.call:
                self.planned.remove(fault)
                self.fired.append(fault)
                raise fault.error


class FaultyStore:
    """Wraps a store with faults. All verbs except `close` go through `Faults.call`."""

    def __init__(self, store: Store, faults: Faults) -> None:
        self.store = store
        self.faults = faults

    def __getattr__(self, name: str) -> object:
        member: object = getattr(self.store, name)
        if name == "close" or not callable(member):
            return member
        return partial(self.faults.call, name, member)

    async def __aenter__(self) -> Store:
        await self.store.__aenter__()
        # It has all verbs of the store, by `__getattr__`.
        return cast(Store, self)

    async def __aexit__(self, *error: object) -> None:
        await self.store.__aexit__(*error)
