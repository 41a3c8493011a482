"""Events without a network: told once, whoever is quicker."""

import asyncio
import json
from collections import deque
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import stores
from penstock.broker.local import Broker
from penstock.broker.queue_cache import QueueCache
from penstock.errors import StoreUnreachable
from penstock.http.events import lease_watcher
from penstock.http.events.frames import KEEPALIVE
from penstock.http.events.hub import (
    MAX_WOKEN_PER_TURN,
    EncodedEvent,
    Event,
    EventKeepalive,
    EventListener,
    Filter,
    Hub,
)
from penstock.http.events.lease_watcher import LeaseWatcher
from penstock.http.events.tail import HistoryReader, HistoryTail, ResumePoint
from penstock.http.events.wait_tail import WaitTail
from penstock.model.message import Draft
from penstock.outage import Outages
from penstock.rules.events import CLAIMED, PUBLISHED
from penstock.testing.faults import Faults

pytestmark = pytest.mark.anyio
EVENT = Event(PUBLISHED, datetime.now(UTC), "default", "q", "7")


async def test_a_message_that_was_announced_is_not_told_again_by_the_follower() -> None:
    hub = Hub()
    listener = hub.listen(Filter("default"))
    hub.announce(EncodedEvent(EVENT, "default"), 7)
    assert len(listener.unread) == 1
    assert not hub.is_news(EVENT)


async def test_a_message_that_the_follower_read_first_is_not_announced() -> None:
    hub = Hub()
    listener = hub.listen(Filter("default"))
    assert hub.is_news(EVENT)
    hub.announce(EncodedEvent(EVENT, "default"), 7)
    assert len(listener.unread) == 0


async def test_a_live_event_has_the_id_of_what_was_told_before_it() -> None:
    hub = Hub()
    hub.cursor = "4-2"
    listener = hub.listen(Filter("default"))
    hub.announce(EncodedEvent(EVENT, "default"), 7)
    hub.cursor = "7-2"
    hub.send([EncodedEvent(EVENT, "default"), EncodedEvent(EVENT, "default", "5-2")])
    frames = (await listener.read()).decode().split("\n\n")
    ids = [line for frame in frames for line in frame.splitlines() if line.startswith("id: ")]
    assert (listener.cursor, ids) == ("4-2", ["id: 4-2", "id: 7-2", "id: 5-2"])


async def test_events_that_were_read_before_an_error_are_read_again() -> None:
    faults = Faults()
    async with await stores.open("sqlite://") as opened:
        store = faults.wrap(opened)
        broker = Broker(store)
        reader = HistoryReader(store, broker.directory, Hub(), ResumePoint(0, 0))
        published = await broker.publish(Draft())
        faults.before("recent", StoreUnreachable("away"))
        with pytest.raises(StoreUnreachable):
            await reader.read()
        assert [each.event.id for each in await reader.read()] == [str(published.id)]
        assert await reader.read() == []


async def test_a_listener_who_is_too_far_behind_is_lost_and_keeps_nothing() -> None:
    hub = Hub()
    listener, other = hub.listen(Filter("default")), hub.listen(Filter("other"))
    hub.send(EncodedEvent(EVENT, "default") for _ in range(1_001))
    assert (listener.lost.done(), len(listener.unread)) == (True, 0)
    assert (other.lost.done(), len(other.unread)) == (False, 0)


async def test_whoever_has_nothing_to_read_feels_a_pulse() -> None:
    hub = Hub()
    idle, busy = hub.listen(Filter("other")), hub.listen(Filter("default"))
    told = EncodedEvent(EVENT, "default")
    hub.send([told])
    await EventKeepalive(hub).tick()
    assert (await idle.read(), await busy.read()) == (KEEPALIVE, told.frame)


async def test_a_crowd_is_told_over_several_turns_of_the_loop() -> None:
    """Others have their turn meanwhile."""
    hub = Hub()
    crowd = [hub.listen(Filter("default")) for _ in range(3 * MAX_WOKEN_PER_TURN)]
    told = EncodedEvent(EVENT, "default")
    hub.send([told, told])
    for turn in range(4):
        assert sum(listener.news.is_set() for listener in crowd) == turn * MAX_WOKEN_PER_TURN
        await asyncio.sleep(0)
    assert not hub.unwoken
    assert [await listener.read() for listener in crowd] == [told.frame * 2] * len(crowd)
    hub.send([told])
    assert [await listener.read() for listener in crowd] == [told.frame] * len(crowd)


def heard(listener: EventListener) -> list[dict[str, Any]]:
    """What a listener was told, in order."""
    frames, listener.unread = list(listener.unread), deque()
    lines = [line for frame in frames for line in frame.decode().splitlines()]
    return [json.loads(line[6:]) for line in lines if line.startswith("data: ")]


async def test_leases_are_read_only_while_a_listener_wants_claims() -> None:
    faults, hub = Faults(), Hub()
    async with await stores.open("sqlite://") as opened:
        store = faults.wrap(opened)
        watcher = LeaseWatcher(store, QueueCache(store), hub, Outages())
        await watcher.tick()
        hub.listen(Filter("default", kinds=frozenset({PUBLISHED})))
        await watcher.tick()
        assert faults.counts["held"] == 0
        hub.listen(Filter("default", kinds=frozenset({CLAIMED})))
        await watcher.tick()
        assert faults.counts["held"] > 0


async def test_what_happens_while_a_listener_is_let_in_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub = Hub()
    async with await stores.open("sqlite://") as store:
        broker = Broker(store)
        watcher = LeaseWatcher(store, broker.directory, hub, Outages())
        waits = WaitTail(store, broker.directory, hub, Outages())
        tail = HistoryTail(store, broker.directory, hub, Outages(), watcher, waits)
        start = watcher.start

        async def start_slowly() -> None:
            await tail.tick()
            await start()
            await broker.publish(Draft())

        monkeypatch.setattr(watcher, "start", start_slowly)
        listener = await tail.listen(Filter("default"))
        assert listener.cursor == "0-0"
        await tail.tick()
        assert [event["kind"] for event in heard(listener)] == [PUBLISHED]


async def test_claims_before_a_listener_came_are_not_told() -> None:
    hub = Hub()
    async with await stores.open("sqlite://") as store:
        broker = Broker(store)
        watcher = LeaseWatcher(store, broker.directory, hub, Outages())
        listener = hub.listen(Filter("default"))
        await broker.publish_many([Draft(), Draft()])
        await broker.claim("default", consumer="early")
        await watcher.tick()
        await broker.claim("default", consumer="late")
        await watcher.tick()
        await watcher.tick()
        assert [(event["kind"], event["consumer"]) for event in heard(listener)] == [
            (CLAIMED, "late")
        ]


async def test_too_many_claims_are_told_as_a_number_for_each_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lease_watcher, "MAX_LEASES", 2)
    hub = Hub()
    async with await stores.open("sqlite://") as store:
        broker = Broker(store)
        watcher = LeaseWatcher(store, broker.directory, hub, Outages())
        listener = hub.listen(Filter("default"))
        await watcher.tick()
        await broker.publish_many([Draft() for _ in range(5)])
        for _ in range(4):
            await broker.claim("default", consumer="c")
        await watcher.tick()
        (summary,) = heard(listener)
        assert (summary["kind"], summary["queue"], summary["count"]) == (CLAIMED, "default", 3)
        # What is left over is few enough to be told one by one, though more than that is held.
        await broker.claim("default", consumer="c")
        await watcher.tick()
        assert [event["id"] for event in heard(listener)] == ["4", "5"]
