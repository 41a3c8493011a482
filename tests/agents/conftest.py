"""A whole Penstock in memory for every test of an agent."""

from collections.abc import AsyncIterator

import pytest

from penstock.testing.simulation import Simulation


@pytest.fixture
async def simulation() -> AsyncIterator[Simulation]:
    async with Simulation.open() as simulation:
        yield simulation
