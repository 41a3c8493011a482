"""An idle store is read, not written, however many nodes look at it."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.model.message import Draft, SettleReject
from penstock.model.queue import Schedule
from penstock.testing.simulation import Simulation
from tests.agents.scenes import hold, publish

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue.db"


@pytest.fixture
def outside(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as connection:
        yield connection


def version(outside: sqlite3.Connection) -> int:
    """Changes when anybody else writes."""
    (number,) = outside.execute("PRAGMA data_version").fetchone()
    return int(number)


async def test_agents_write_nothing_to_a_store_at_rest(
    path: Path, outside: sqlite3.Connection
) -> None:
    async with Simulation.open(f"sqlite:///{path}?durability=fast", nodes=2) as simulation:
        broker = simulation.broker
        # Work that nobody claims is an anomaly, and is recorded.
        await broker.admin.set_queue("default", anomalies={"off": ["no_consumer"]})
        await broker.admin.schedule(Schedule("new year", "0 0 1 1 *", Draft()))
        (dead,) = await hold(broker, "default")
        await broker.settle(dead, SettleReject("no"))
        (done,) = await hold(broker, "default")
        await broker.complete(done, b"result")
        await hold(broker, "default", lease=43_200.0)
        await publish(broker, "default", 5)
        await broker.publish(Draft(delay=86_400.0, ttl=90_000.0))
        await simulation.run_until_idle()
        before = version(outside)
        await simulation.advance("20m")
        assert version(outside) == before


async def test_the_check_sees_a_write(path: Path, outside: sqlite3.Connection) -> None:
    async with Simulation.open(f"sqlite:///{path}?durability=fast") as simulation:
        await simulation.broker.publish(Draft(ttl=1.0))
        await simulation.run_until_idle()
        before = version(outside)
        await simulation.advance("2m")
        assert version(outside) != before
