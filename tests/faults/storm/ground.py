"""What a storm must know of the store it rages on."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, Self

from msgspec import Struct

from tests.checker import Plan, Recorder
from tests.faults.storm.fleet import Child
from tests.faults.storm.strikes import SMALL, Kind, Shares, Strike

Deed = Callable[[Strike], Coroutine[Any, Any, None]]


class Weather(Struct, frozen=True):
    """Which faults rage, what the checker is told, and which errors nobody is to blame for."""

    plan: Plan
    great: Shares
    expected: frozenset[str]
    small: tuple[Kind, ...] = SMALL


class Ground(Protocol):
    """Lives in the process of the storm, and is entered before all others start."""

    weather: Weather

    @property
    def urls(self) -> Sequence[str]:
        """The ways to the store: the processes of a slot take one of them."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None: ...

    def deeds(self, recorder: Recorder) -> Mapping[Kind, Deed]:
        """The faults that are particular to this store."""

    def seen(self, child: Child) -> Sequence[str]:
        """The faults it is to others that this process is stopped; `cut`: nobody can work."""

    def heal(self) -> None:
        """No more faults from here on."""

    def places(self) -> dict[int, tuple[str, ...]]:
        """The tables that hold each ticket."""

    def damages(self) -> list[str]:
        """What the store finds wrong with itself."""
