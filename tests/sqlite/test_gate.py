"""Processes take turns to write, and one that stops or dies does not hold up the others."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from penstock.errors import StoreBusy
from penstock.stores.sqlite.store import SqliteStore
from penstock.stores.sqlite.writer import WriteTurns
from tests.sqlite.children import CAP, Child, children, wait_until
from tests.sqlite.scenes import places, publish

pytestmark = pytest.mark.anyio


@pytest.fixture
def lock(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


@pytest.fixture
def gate(lock: Path) -> Iterator[WriteTurns]:
    gate = WriteTurns(str(lock), acquire_timeout_s=0.05)
    yield gate
    gate.close()


async def enter_in_the_end(gate: WriteTurns) -> None:
    with anyio.fail_after(CAP):
        while True:
            if await asyncio.to_thread(gate.enter):
                return
            await anyio.sleep(0.005)


def test_an_open_gate_is_entered_again_and_again(gate: WriteTurns) -> None:
    for _ in range(3):
        assert gate.enter()
        gate.leave()


async def test_whoever_waits_enters_when_the_holder_leaves(child: Child, lock: Path) -> None:
    patient = WriteTurns(str(lock), acquire_timeout_s=CAP)
    assert await child.ask("enter_gate", lock) == "True"
    waiting = asyncio.create_task(asyncio.to_thread(patient.enter))
    await wait_until(lambda: patient.waiter is not None)
    assert await child.ask("leave_gate") == "left"
    assert await waiting
    patient.leave()
    patient.close()


async def test_the_gate_of_a_stopped_process_is_passed_by(
    child: Child, gate: WriteTurns, lock: Path
) -> None:
    assert await child.ask("enter_gate", lock) == "True"
    await child.stop()
    assert await asyncio.to_thread(gate.enter) is False
    # Known to be stuck: without another wait, and without another thread.
    waiter = gate.waiter
    assert gate.enter() is False
    assert gate.waiter is waiter


async def test_the_gate_is_entered_again_after_a_stopped_process_left(
    child: Child, gate: WriteTurns, lock: Path
) -> None:
    await child.ask("enter_gate", lock)
    await child.stop()
    assert await asyncio.to_thread(gate.enter) is False
    child.go_on()
    assert await child.ask("leave_gate") == "left"
    await enter_in_the_end(gate)
    gate.leave()


async def test_a_wait_that_was_given_up_does_not_keep_the_gate(
    child: Child, gate: WriteTurns, lock: Path
) -> None:
    await child.ask("enter_gate", lock)
    assert await asyncio.to_thread(gate.enter) is False
    await child.ask("leave_gate")
    await wait_until(lambda: gate.waiter is None)
    assert await child.ask("enter_gate", lock) == "True"


async def test_a_killed_holder_leaves_the_gate_open(
    child: Child, gate: WriteTurns, lock: Path
) -> None:
    await child.ask("enter_gate", lock)
    assert await asyncio.to_thread(gate.enter) is False
    await child.kill()
    await enter_in_the_end(gate)
    gate.leave()


async def test_a_gate_closes_while_it_waits_for_a_stopped_process(
    child: Child, gate: WriteTurns, lock: Path
) -> None:
    await child.ask("enter_gate", lock)
    await child.stop()
    assert await asyncio.to_thread(gate.enter) is False
    gate.close()
    assert gate.waiter is not None


async def test_a_store_goes_on_while_a_stopped_process_holds_the_gate(
    child: Child, store: SqliteStore, lock: Path
) -> None:
    assert await child.ask("enter_gate", lock) == "True"
    await child.stop()
    with anyio.fail_after(CAP):
        for id in range(1, 20):
            assert await publish(store) == [id]
    child.go_on()
    await child.ask("leave_gate")
    await publish(store)
    assert await places(store) == {"message": 20, "ready": 20}


async def shares(busy: list[Child]) -> list[int]:
    """How many messages each publishes in the same time, the fewest first."""
    return sorted(map(int, await asyncio.gather(*(child.ask("flood", 0.7) for child in busy))))


async def test_busy_processes_all_get_their_turns(path: Path) -> None:
    async with children(4) as busy:
        for child in busy:
            await child.ask("open", f"sqlite:///{path}")
        rounds = [await shares(busy), await shares(busy)]
    # Without the gate the luckiest gets up to a hundred times as many. A busy machine may spoil
    # one round; how evenly the gate shares is the benchmark's to say.
    assert any(3 * few > many for few, *_, many in rounds)


async def test_a_writer_waits_five_seconds_for_another(store: SqliteStore) -> None:
    assert store.database.writing.db.execute("PRAGMA busy_timeout").fetchone() == (5_000,)


@pytest.fixture
def hasty(store: SqliteStore) -> SqliteStore:
    """A store that says soon that it is busy."""
    store.database.writing.db.execute("PRAGMA busy_timeout = 100")
    return store


async def stop_inside(child: Child, path: Path) -> None:
    child.tell("stop_inside", path)
    assert await child.hear() == "inside"
    await child.stopped()


async def test_a_process_stopped_inside_a_transaction_makes_the_store_busy(
    child: Child, hasty: SqliteStore, path: Path
) -> None:
    await stop_inside(child, path)
    with anyio.fail_after(CAP), pytest.raises(StoreBusy, match=r"queue\.db"):
        await publish(hasty)
    with anyio.fail_after(CAP):
        assert await places(hasty) == {}


async def test_a_busy_store_works_again_when_the_stopped_process_continues(
    child: Child, hasty: SqliteStore, path: Path
) -> None:
    await stop_inside(child, path)
    with pytest.raises(StoreBusy):
        await publish(hasty)
    child.go_on()
    assert await child.hear() == "finished"
    assert await publish(hasty) == [2]


async def test_a_busy_store_works_again_when_the_stopped_process_dies(
    child: Child, hasty: SqliteStore, path: Path
) -> None:
    await stop_inside(child, path)
    with pytest.raises(StoreBusy):
        await publish(hasty)
    await child.kill()
    assert await publish(hasty) == [1]
    assert await places(hasty) == {"message": 1, "ready": 1}
