"""Events about waiting: signals, resumes, human steps and workflows, for those who may see them."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import Context, Penstock
from penstock.app.workflow import chain
from penstock.broker.local import Broker
from penstock.http.events.hub import EventListener, Filter, Hub
from penstock.http.events.lease_watcher import LeaseWatcher
from penstock.http.events.tail import HistoryReader, HistoryTail, ResumePoint
from penstock.http.events.wait_tail import WaitTail
from penstock.model.live_events import Audience
from penstock.model.message import Draft
from penstock.outage import Outages
from penstock.rules.events import LIVE_WAIT_KINDS, PUBLISHED
from penstock.rules.human import Person
from penstock.rules.human_spec import parse_spec
from penstock.testing.faults import Faults
from penstock.testing.simulation import Simulation
from penstock.worker.ack_policy import Reject
from tests.http.keys import keyed, serve_with_auth
from tests.http.served import Served, Stream

BOSS = Person("boss", acts_for_all=True, sees_all=True)
HUMAN_KINDS = ("human.opened", "human.reminded", "human.escalated", "human.decided")


class Watched:
    """A simulation, and the followers of a server that runs nothing itself."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.hub = Hub()
        # Its own broker, as another server has.
        store, directory = simulation.store, Broker(simulation.store).directory
        events = (store, directory, self.hub, Outages())
        self.directory = directory
        self.wait_tail = WaitTail(*events)
        self.tail = HistoryTail(*events, LeaseWatcher(*events), self.wait_tail)

    async def listen(self, *kinds: str) -> EventListener:
        return await self.tail.listen(Filter("default", kinds=frozenset(kinds)))

    async def hear(self, listener: EventListener) -> list[dict[str, Any]]:
        """Returns the events since the last call."""
        await self.tail.tick()
        await self.wait_tail.tick()
        events = [decode(frame) for frame in listener.unread]
        listener.unread.clear()
        return events


def decode(frame: bytes) -> dict[str, Any]:
    (line,) = [line for line in frame.decode().splitlines() if line.startswith("data:")]
    found: dict[str, Any] = json.loads(line.partition(":")[2])
    return found


def name(events: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(event["kind"], event.get("reason")) for event in events]


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    async with Simulation.open() as simulation:
        yield Watched(simulation)


@pytest.mark.anyio
async def test_a_signal_and_the_resume_are_told_once(watched: Watched) -> None:
    app = Penstock("sqlite://")

    @app.task(queue="orders")
    async def wait_for_money(context: Context) -> None:
        await context.signal("paid")
        await context.signal("sent")

    simulation = watched.simulation
    await simulation.use(app)
    early, late = [await wait_for_money.aenqueue() for _ in range(2)]
    await simulation.advance(2)
    # The first wait began before anyone listened, the second one after.
    listener = await watched.listen("signal.received", "message.resumed", "message.waiting")
    assert await watched.hear(listener) == []
    await simulation.signal(early.id, "paid", 1)
    await simulation.advance(2)
    heard = await watched.hear(listener)
    assert sorted(name(heard)) == [
        ("message.resumed", None), ("message.waiting", "signal:sent"), ("signal.received", "paid"),
    ]  # fmt: skip
    assert {(event["id"], event["queue"]) for event in heard} == {(str(early.id), "orders")}
    await simulation.signal(early.id, "sent", 1)
    await simulation.broker.admin.cancel(late.id)
    await simulation.advance(2)
    heard = await watched.hear(listener)
    assert sorted(name(heard)) == [("message.resumed", None), ("signal.received", "sent")]
    assert await watched.hear(listener) == []


@pytest.mark.anyio
async def test_the_resume_of_a_message_among_many_scheduled_ones_is_told(watched: Watched) -> None:
    app = Penstock("sqlite://")

    @app.task(queue="orders")
    async def wait_for_money(context: Context) -> None:
        await context.signal("paid")

    simulation = watched.simulation
    await simulation.use(app)
    job = await wait_for_money.aenqueue()
    await simulation.advance(2)
    for _ in range(6):
        await simulation.broker.publish_many([Draft(queue="orders", delay=3_600)] * 1_000)
    listener = await watched.listen("message.resumed")
    await watched.hear(listener)
    await simulation.signal(job.id, "paid", 1)
    await simulation.advance(2)
    (event,) = await watched.hear(listener)
    assert (event["kind"], event["id"]) == ("message.resumed", str(job.id))


@pytest.mark.anyio
async def test_a_human_step_is_told_from_its_opening_to_its_outcome(watched: Watched) -> None:
    simulation = watched.simulation
    await simulation.broker.inbox.open_queue("default")
    listener = await watched.listen(*HUMAN_KINDS)
    spec = parse_spec(
        {
            "title": "Refund?", "assign": {"users": ["ann"]}, "timeout": 100,
            "reminders": [50], "on_timeout": {"escalate": ["finance"]},
        }
    )  # fmt: skip
    opened = await simulation.broker.inbox.request(spec, requester="eve")
    assert name(await watched.hear(listener)) == [("human.opened", None)]
    await simulation.advance(55)
    assert name(await watched.hear(listener)) == [("human.reminded", None)]
    await simulation.advance(50)
    assert name(await watched.hear(listener)) == [("human.escalated", "finance")]
    await simulation.broker.inbox.decide(opened.id, BOSS, "approve")
    (decided,) = await watched.hear(listener)
    assert (decided["reason"], decided["by"]) == ("approve", "boss")
    assert (decided["state"], decided["id"]) == ("completed", str(opened.id))


@pytest.mark.anyio
async def test_a_listener_who_comes_back_hears_what_was_decided_meanwhile(
    watched: Watched,
) -> None:
    simulation = watched.simulation
    opened = await simulation.broker.inbox.request(parse_spec({"title": "?"}), requester="eve")
    await simulation.broker.inbox.decide(opened.id, BOSS, "reject")
    reader = HistoryReader(
        simulation.store, watched.directory, watched.hub, ResumePoint(message=0, history=0)
    )
    told = [each for each in await reader.read() if each.event.kind.startswith("human.")]
    assert [each.event.kind for each in told] == ["human.opened", "human.decided"]
    # The requester hears the outcome.
    assert [each.audience for each in told] == [Audience(), Audience(frozenset({"eve"}))]


@pytest.mark.anyio
async def test_a_workflow_is_told_when_it_is_blocked_and_when_it_ends(watched: Watched) -> None:
    app = Penstock("sqlite://")
    broken = True

    @app.task(queue="etl")
    async def extract(context: Context) -> None:
        if broken:
            raise Reject("no")

    simulation = watched.simulation
    await simulation.use(app)
    listener = await watched.listen("workflow.blocked", "workflow.ended")
    started = await chain(extract.call(), extract.call()).aenqueue()
    await simulation.advance(5)
    (blocked,) = await watched.hear(listener)
    assert (blocked["kind"], blocked["id"]) == ("workflow.blocked", started.id)
    broken = False
    await simulation.broker.workflows.redrive(started.id)
    await simulation.advance(5)
    (ended,) = await watched.hear(listener)
    assert (ended["kind"], ended["state"]) == ("workflow.ended", "completed")


@pytest.mark.anyio
async def test_waits_are_not_read_without_a_listener_for_them() -> None:
    faults = Faults()
    async with Simulation.open() as simulation:
        store = faults.wrap(simulation.store)
        hub = Hub()
        tail = WaitTail(store, Broker(store).directory, hub, Outages())
        hub.listen(Filter("default", kinds=frozenset({PUBLISHED})))
        await tail.tick()
        assert not faults.counts
        hub.listen(Filter("default", kinds=frozenset({LIVE_WAIT_KINDS[0]})))
        await tail.tick()
        assert faults.counts["documents"] > 0


@pytest.fixture(scope="module")
def server(store: str, folder: Path) -> Iterator[Served]:
    with serve_with_auth(store, folder) as running:
        yield running


def test_steps_of_others_are_not_told(server: Served) -> None:
    server.ask("PUT", "/v1/roles/payers", {"grants": ["read:nothing"]})
    server.ask("PUT", "/v1/roles/auditors", {"grants": ["read:_human"]})
    queue = server.queue()
    listeners = {
        role: Stream(keyed(server, role), kind=["human.opened", "message.published"])
        for role in ("payers", "auditors", "viewer")
    }
    spec = {"title": "Refund?", "assign": {"roles": ["payers"]}}
    id = server.post("/v1/inbox", {"spec": spec}).json["id"]
    assert listeners["payers"].event()["id"] == id
    assert listeners["auditors"].until("human.opened", id)
    last = server.publish(queue)
    with closing(listeners["viewer"]) as viewer:
        # A viewer reads all queues but not the steps of others.
        assert viewer.event()["id"] == last
    for role in ("payers", "auditors"):
        listeners[role].close()


def test_signals_are_told_to_readers_of_the_queue(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    with closing(Stream(server, kind="signal.received")) as stream:
        assert server.post(f"/v1/messages/{id}/signals/paid", {"body": 1}).status == 201
        event = stream.event()
        assert (event["id"], event["queue"], event["reason"]) == (id, queue, "paid")
