"""Waits of a real store, as the checker sees them."""

from pathlib import Path
from typing import cast

import pytest

from penstock import stores
from penstock.broker.local import Broker
from penstock.model.message import After, Draft, Leased
from penstock.model.store_types import AnswerKind
from penstock.model.waiting import Hold, StepRecord, WaitPlan
from penstock.store import Store
from tests.checker import Kind, Recorder, check, read
from tests.faults.storm.bodies import body_of
from tests.faults.storm.dump import dump
from tests.faults.storm.recording_store import RecordingStore

pytestmark = pytest.mark.anyio
SLEEP = WaitPlan(reason="sleep", holds=(Hold(kind="moment", delay=0.05),))
SIGNAL = WaitPlan(reason="signal:go", holds=(Hold(kind="signal", name="go"),))
GATHER = WaitPlan(
    reason="after:2",
    holds=(Hold(kind="after", after=After(entries=(0, 1))),),
    children=(Draft(body=body_of("one")), Draft(body=body_of("two"))),
    children_step=StepRecord(name="gather", key="0", kind="gather", done=False),
)


async def take(broker: Broker) -> Leased:
    """Looks at held messages until one message is ready."""
    while True:
        await broker.store.resume_held()
        taken = await broker.claim("default", consumer="c", wait=0.02)
        if taken.messages:
            return taken.messages[0]


async def run_waits(broker: Broker) -> None:
    """Lets a message sleep, wait for a signal and for two children, and completes it."""
    id = (await broker.publish(Draft(body=body_of("parent")))).id
    for plan in (SLEEP, SIGNAL, GATHER):
        leased = await take(broker)
        assert (await broker.waits.suspend(leased, plan)).kind is AnswerKind.DONE
        if plan is SIGNAL:
            await broker.waits.signal(id, "go")
    for _ in range(3):
        await broker.complete(await take(broker))


async def record_waits(directory: Path) -> set[Kind]:
    recorder = Recorder(directory, "one")
    async with await stores.open("sqlite://") as store:
        names = {queue.id: queue.name for queue in await store.queues()}
        async with Broker(cast(Store, RecordingStore(store, recorder, names))) as broker:
            await run_waits(broker)
            await dump(store, recorder, {})
    recorder.close()
    return set(check(read(directory)).counts)


async def test_what_a_store_lets_wait_is_legal(tmp_path: Path) -> None:
    assert await record_waits(tmp_path) == set()


async def test_a_store_that_resumes_too_early_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.stores.sql.resume.has_ended", lambda *_: True)
    assert Kind.RESUMED_EARLY in await record_waits(tmp_path)
