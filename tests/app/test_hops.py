"""How many files a hot path crosses, on a SQLite file.

Counted are the files of the deepest chain of calls in the caller's thread: from the verb down to
the writer. Rules and models that are asked on the way and answer are not hops.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

import penstock
from penstock import Penstock, stores
from penstock.agents.reclaimer import Reclaimer
from penstock.broker.local import Broker
from penstock.broker.queue_cache import QueueCache
from penstock.model.message import Draft, State
from penstock.model.store_types import Completion
from penstock.testing.simulation import ManualClock

pytestmark = pytest.mark.anyio
SOURCE = str(Path(penstock.__file__).parent) + "/"


def list_files(frame: FrameType | None) -> list[str]:
    """The files of the call chain, outermost first."""
    found: list[str] = []
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(SOURCE) and name not in found:
            found.append(name)
        frame = frame.f_back
    return [name.removeprefix(SOURCE) for name in reversed(found)]


@contextmanager
def deepest_chain() -> Iterator[Callable[[], list[str]]]:
    chain: list[str] = []

    def see(frame: FrameType, event: str, argument: object) -> None:
        nonlocal chain
        if event == "call" and len(files := list_files(frame)) > len(chain):
            chain = files

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield lambda: chain
    finally:
        sys.setprofile(before)


async def test_enqueueing_a_task_crosses_at_most_six_files(tmp_path: Path) -> None:
    app = Penstock(f"sqlite:///{tmp_path}/a.db")

    @app.task
    async def greet(name: str) -> str:
        return name

    await greet.aenqueue("warm")
    with deepest_chain() as chain:
        await greet.aenqueue("Ada")
    await app.aclose()
    assert len(chain()) <= 6, chain()


async def test_the_acks_of_a_worker_cross_at_most_five_files(tmp_path: Path) -> None:
    """From the completer, which calls `complete_claimed`."""
    async with await stores.open(f"sqlite:///{tmp_path}/a.db") as store:
        broker = Broker(store)
        await broker.publish(Draft())
        (message,) = (await broker.claim("default", consumer="me")).messages
        with deepest_chain() as chain:
            await broker.complete_claimed([Completion(message.id, message.fence)])
    assert len(["worker/completer.py", *chain()]) <= 5, chain()


async def test_a_tick_of_the_reclaimer_crosses_at_most_five_files(tmp_path: Path) -> None:
    async with await stores.open(f"sqlite:///{tmp_path}/a.db") as store:
        reclaimer = Reclaimer(store, QueueCache(store), "me")
        with deepest_chain() as chain:
            await reclaimer.tick()
    assert len(chain()) <= 5, chain()


async def test_a_tick_that_reclaims_a_lease_crosses_at_most_five_files(tmp_path: Path) -> None:
    clock = ManualClock()
    async with await stores.open(f"sqlite:///{tmp_path}/a.db", clock=clock) as store:
        broker = Broker(store)
        published = await broker.publish(Draft())
        await broker.claim("default", consumer="me", lease=1.0)
        reclaimer = Reclaimer(store, QueueCache(store), "me")
        clock.advance(2)
        await reclaimer.tick()
        clock.advance(2)
        with deepest_chain() as chain:
            await reclaimer.tick()
        record = await broker.admin.get(published.id)
    assert record.state is State.READY
    assert len(chain()) <= 5, chain()
