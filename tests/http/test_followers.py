"""Events of bulk actions and anomalies, by a clock that the test turns."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from penstock import stores
from penstock.agents.bulk_runner import BulkRunner
from penstock.broker.anomalies import make_case, record_anomalies
from penstock.broker.local import Broker
from penstock.http.events.anomaly_watcher import AnomalyWatcher
from penstock.http.events.audit_tail import AuditTail
from penstock.http.events.bulk_tail import BulkTail
from penstock.http.events.hub import Filter, Hub
from penstock.model.documents import AuditEntry
from penstock.model.message import Draft
from penstock.rules.anomalies import RESOLVE_AFTER_S
from penstock.testing.simulation import ManualClock

pytestmark = pytest.mark.anyio


class Watch:
    """A store, and a listener to its events."""

    def __init__(self, broker: Broker, clock: ManualClock) -> None:
        self.broker = broker
        self.clock = clock
        self.hub = Hub()
        self.listener = self.hub.listen(Filter("default"))
        self.bulk_tail = BulkTail(broker.store, broker.directory, self.hub)
        self.anomaly_watcher = AnomalyWatcher(broker.store, broker.directory, self.hub)

    async def publish(self, count: int) -> None:
        for _ in range(count):
            await self.broker.publish(Draft(queue="default"))

    async def run_once(self) -> None:
        """Does one batch of each action."""
        runner = BulkRunner(self.broker.store, self.broker.directory, "me")
        await runner.tick()

    def events(self) -> list[dict[str, Any]]:
        """What the listener has not read yet."""
        frames = b"".join(self.listener.unread).decode().splitlines()
        self.listener.unread.clear()
        return [json.loads(line[6:]) for line in frames if line.startswith("data: ")]


@pytest.fixture
async def watch() -> AsyncIterator[Watch]:
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(await stores.open("sqlite://", clock=clock))
        yield Watch(Broker(store), clock)


def tell(events: list[dict[str, Any]]) -> list[tuple[str, str, str, int]]:
    return [(each["kind"], each["id"], each["state"], each.get("count", 0)) for each in events]


async def test_a_bulk_action_between_two_looks_starts_and_ends(watch: Watch) -> None:
    await watch.bulk_tail.tick()
    await watch.publish(2)
    await watch.broker.bulk.start("cancel", filter="queue:default")
    while await watch.broker.bulk.list_actions(active=True):
        await watch.run_once()
    await watch.bulk_tail.tick()
    assert tell(watch.events()) == [
        ("bulk.started", "1", "running", 0),
        ("bulk.ended", "1", "done", 2),
    ]
    await watch.bulk_tail.tick()
    assert watch.events() == []


async def test_a_longer_bulk_action_reports_its_progress(watch: Watch) -> None:
    await watch.bulk_tail.tick()
    await watch.publish(2)
    await watch.broker.bulk.start("cancel", filter="queue:default", rate=1)
    await watch.bulk_tail.tick()
    assert tell(watch.events()) == [("bulk.started", "1", "running", 0)]
    await watch.run_once()
    await watch.bulk_tail.tick()
    assert tell(watch.events()) == [("bulk.progress", "1", "running", 1)]
    while await watch.broker.bulk.list_actions(active=True):
        watch.clock.advance(60)
        await watch.run_once()
    await watch.bulk_tail.tick()
    assert tell(watch.events()) == [("bulk.ended", "1", "done", 2)]


async def test_actions_that_ended_before_the_first_look_are_not_reported(watch: Watch) -> None:
    await watch.broker.bulk.start("cancel", filter="queue:default")
    while await watch.broker.bulk.list_actions(active=True):
        await watch.run_once()
    await watch.bulk_tail.tick()
    assert watch.events() == []


async def test_acts_reach_listeners_that_ask_for_them_and_may_see_them(watch: Watch) -> None:
    tail = AuditTail(watch.broker.store, watch.hub)
    asked = frozenset({"act"})
    blind = watch.hub.listen(Filter("default", kinds=asked))
    watch.listener = watch.hub.listen(
        Filter("default", kinds=asked, sees_act=lambda act: act.subject != "eve")
    )
    everything = watch.hub.listen(Filter("default", sees_act=lambda act: True))
    acts = [
        AuditEntry(subject=each, tenant=tenant, verb="POST", target="/v1/queues/mail/pause")
        for each, tenant in (("ann", "default"), ("eve", "default"), ("bob", "acme"))
    ]
    await watch.broker.store.record(acts[:1])
    await tail.tick()
    await watch.broker.store.record(acts)
    for _ in range(2):
        await tail.tick()
    (event,) = watch.events()
    assert (event["kind"], event["subject"], event["queue"], event["verb"]) == (
        "act", "ann", "mail", "POST",
    )  # fmt: skip
    assert not blind.unread
    assert not everything.unread


async def test_an_anomaly_opens_and_is_resolved(watch: Watch) -> None:
    queue = await watch.broker.admin.queue("default")
    await watch.anomaly_watcher.tick()
    now = await watch.broker.now()
    await record_anomalies(
        watch.broker.store,
        watch.broker.directory,
        [make_case("no_consumer", now, queue_id=queue.id)],
    )
    await watch.anomaly_watcher.tick()
    (opened,) = watch.events()
    assert (opened["kind"], opened["queue"], opened["reason"]) == (
        "anomaly.opened", "default", "no_consumer",
    )  # fmt: skip
    watch.clock.advance(RESOLVE_AFTER_S + 1)
    await watch.anomaly_watcher.tick()
    (resolved,) = watch.events()
    assert (resolved["kind"], resolved["queue"], resolved["reason"]) == (
        "anomaly.resolved", "default", "no_consumer",
    )  # fmt: skip
