"""The pytest plugin: fixtures for a simulation and its clock."""

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.simulation import ManualClock, Simulation
    from penstock.testing.sync import SyncSimulation


@pytest.fixture
def penstock_clock() -> "ManualClock":
    """The clock of `penstock_simulation`."""
    from penstock.testing.simulation import ManualClock

    return ManualClock()


@pytest.fixture
async def penstock_simulation(penstock_clock: "ManualClock") -> "AsyncIterator[Simulation]":
    """A complete in-memory Penstock in virtual time. For async tests with anyio."""
    from penstock.testing.simulation import Simulation

    async with Simulation.open(clock=penstock_clock) as simulation:
        yield simulation


@pytest.fixture
def penstock_sync_simulation(penstock_clock: "ManualClock") -> "Iterator[SyncSimulation]":
    """The same for tests without an event loop. Call its `use(app)`, `run()` and `advance()`."""
    from penstock.testing.sync import SyncSimulation

    with SyncSimulation.open(clock=penstock_clock) as simulation:
        yield simulation
