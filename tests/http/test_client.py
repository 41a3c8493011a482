"""The client: the broker's verbs over HTTP, with a loop and without."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.broker.consume import Consumer
from penstock.broker.interfaces.waiting import WaitsInterface
from penstock.broker.publish import Publisher
from penstock.broker.schemas.registry import SchemaRegistry
from penstock.broker.scopes import ScopeAdmin
from penstock.broker.topology.apply import Topology
from penstock.client import Client, SyncClient
from penstock.client.schemas import RemoteSchemas
from penstock.client.scopes import RemoteScopes
from penstock.client.topology import RemoteTopology
from penstock.errors import (
    InvalidState,
    JobFailed,
    LockLost,
    NameTaken,
    NotFound,
    OutcomeUnknown,
    PenstockError,
    SchemaIncompatible,
    SchemaMismatch,
    StoreUnreachable,
)
from penstock.model.message import (
    Dedup,
    Draft,
    Fail,
    Nack,
    Reclaim,
    Release,
    Settlement,
    SettleReject,
    State,
)
from penstock.model.queue import QueueState, Schedule
from penstock.model.store_types import AnswerKind, Lock
from tests.http.served import Served
from tests.servers.places import free_port

pytestmark = pytest.mark.anyio
OWN = {"admit", "publish_on", "apublish_on"}


@pytest.fixture
async def client(server: Served) -> AsyncIterator[Client]:
    async with Client(f"http://127.0.0.1:{server.port}") as made:
        yield made


def verbs(kind: type) -> set[str]:
    return {name for each in kind.__mro__ for name in vars(each) if not name.startswith("_")}


def test_it_has_every_verb_of_the_broker_that_needs_no_connection_of_ones_own() -> None:
    inside = (verbs(Publisher) | verbs(Consumer)) - OWN
    assert inside - verbs(Client) == set()
    assert verbs(Client) - verbs(SyncClient) == set()
    assert verbs(SchemaRegistry) - verbs(RemoteSchemas) == set()
    assert verbs(ScopeAdmin) - verbs(RemoteScopes) == set()
    assert verbs(Topology) - verbs(RemoteTopology) == set()


# Called by workers while handlers run, and by apps in a caller's transaction. Streams are async.
INSIDE = {
    "activity": {"follow"},
    "waits": verbs(WaitsInterface),
    "artifacts": {"spool", "attach_uploads"},
    "workflows": {"prepare", "start_on", "astart_on"},
}


async def test_the_sync_client_has_every_group_with_every_verb(client: Client) -> None:
    with SyncClient("http://127.0.0.1:1") as sync:
        groups = [name for name, group in vars(client).items() if "Remote" in type(group).__name__]
        assert len(groups) > 10
        for name in groups:
            theirs = verbs(type(getattr(sync, name)))
            missing = verbs(type(getattr(client, name))) - theirs
            assert missing <= INSIDE.get(name, set()), name


async def test_a_message_makes_its_way(server: Served, client: Client) -> None:
    queue = server.queue()
    draft = Draft(queue=queue, type="t", body=b'{"a": 1}', priority=2, headers={"h": "v"},
                  correlation_id="c", timeout=9.0)  # fmt: skip
    published = await client.publish(draft)
    taken = await client.claim((queue, ["t"]), consumer="me", wait=10)
    (message,) = taken.messages
    assert taken.queues == {queue: QueueState.ACTIVE}
    assert (message.id, message.body, message.priority) == (published.id, b'{"a": 1}', 2)
    assert (message.meta.headers, message.meta.timeout) == ({"h": "v"}, 9.0)
    longer = await client.extend(message, 600)
    assert longer.lease_until is not None
    assert longer.lease_until > message.lease_until
    await client.progress(message, 50, "half")
    record = await client.admin.get(published.id)
    assert (record.state, record.percent, record.consumer) == (State.CLAIMED, 50.0, "me")
    answer = await client.complete(message, b"[1]")
    assert (answer.kind, answer.state) == (AnswerKind.DONE, State.COMPLETED)
    assert await client.admin.result(published.id) == b"[1]"
    (row,) = (await client.admin.get(published.id)).timeline
    assert (row.state, row.final, row.consumer) == (State.COMPLETED, True, "me")


@pytest.mark.parametrize("body", [b"", b"null", b" 1 ", b"\xff\x00", b'"\\ud800"', b"{"])
async def test_a_body_comes_back_byte_by_byte(server: Served, client: Client, body: bytes) -> None:
    queue = server.queue()
    await client.publish(Draft(queue=queue, body=body))
    (message,) = (await client.claim(queue, consumer="me")).messages
    assert message.body == body
    await client.complete(message, body)
    assert (await client.admin.result(message.id) or b"") == body


async def test_every_settlement_leads_where_it_says(server: Served, client: Client) -> None:
    queue = server.queue()
    await client.publish_many([Draft(queue=queue)] * 4)
    held = (await client.claim(queue, consumer="me", limit=4)).messages
    settlements: list[Settlement] = [
        Nack("no", delay=60),
        Fail("over"),
        SettleReject("bad"),
        Release(),
    ]
    answers = await client.settle_many(list(zip(held, settlements, strict=True)))
    assert [answer.state for answer in answers] == ["scheduled", "failed", "dead", "ready"]
    with pytest.raises(NotFound):
        await client.complete(held[0])
    with pytest.raises(PenstockError, match="agents can reclaim"):
        await client.settle(Lock(1, 1), Reclaim())


async def test_a_traceback_travels_both_ways(server: Served, client: Client) -> None:
    queue = server.queue()
    id = (await client.publish(Draft(queue=queue))).id
    (held,) = (await client.claim(queue, consumer="me")).messages
    await client.begin(held)
    running = await client.admin.get(id)
    assert (running.consumer, running.begun_at is not None) == ("me", True)
    await client.settle(held, Nack("no", traceback="at line 3"))
    assert (await client.admin.get(id)).traceback == "at line 3"


async def test_a_lost_lock_and_a_repeated_call_are_told(server: Served, client: Client) -> None:
    queue = server.queue()
    await client.publish(Draft(queue=queue))
    (first,) = (await client.claim(queue, consumer="a")).messages
    token = client.tokens[first.id, first.fence]
    await client.settle(first, Nack(delay=0))
    (second,) = (await client.claim(queue, consumer="b", wait=10)).messages
    client.tokens[first.id, first.fence] = token
    with pytest.raises(LockLost):
        await client.extend(first, 30)
    again = await client.settle(first, Nack(delay=0))
    assert again.kind is AnswerKind.ALREADY
    await client.complete(second)
    assert client.tokens == {}


async def test_refusals_are_the_errors_of_the_broker(server: Served, client: Client) -> None:
    queue = server.queue()
    await client.publish(Draft(queue=queue, name="n"))
    with pytest.raises(NameTaken, match="'n'"):
        await client.publish(Draft(queue=queue, name="n"))
    with pytest.raises(NotFound, match="no queue named 'nowhere'"):
        await client.claim("nowhere", consumer="me")
    outcomes = await client.publish_many([Draft(queue=queue), Draft(queue="nowhere")])
    assert [outcome.code for outcome in outcomes] == [None, "NOT_FOUND"]
    with pytest.raises(NotFound):
        await client.publish_many([Draft(queue=queue), Draft(queue="nowhere")], atomic=True)


async def test_operators_have_their_verbs(server: Served, client: Client) -> None:
    admin = client.admin
    name = f"{server.queue()}-own"
    queue = await admin.create_queue(name, preset_name="relay", lease=7.0)
    assert (queue.settings.lease, queue.settings.max_attempts) == (7.0, 3)
    assert queue in await admin.queues()
    assert (await admin.set_queue(name, lease=8.0)).settings.lease == 8.0
    for state in (QueueState.PAUSED, QueueState.DRAINING, QueueState.ARCHIVED, QueueState.ACTIVE):
        assert (await admin.set_state(name, state)).state is state
    ids = [(await client.publish(Draft(queue=name, type="x"))).id for _ in range(3)]
    found = await admin.find(name, type="x", limit=2)
    rest = await admin.find(name, type="x", limit=2, before=found[-1].message.id)
    assert [each.message.id for each in found + rest] == ids[::-1]
    page = await admin.search(f"queue:{name} type:x", limit=2)
    last = await admin.search(f"queue:{name} type:x", limit=2, cursor=page.cursor)
    assert [each.message.id for each in page.records + last.records] == ids[::-1]
    assert (page.exact, last.exact) == (False, True)
    with pytest.raises(PenstockError, match="not the last id of a page"):
        await admin.find(name, before=ids[0])
    assert (await admin.cancel(ids[0])).state is State.CANCELLED
    assert (await admin.redrive(ids[0])).id not in ids
    assert isinstance((await admin.redrive_many([ids[1]]))[0], InvalidState)
    assert await admin.purge(name, "ready") == 3
    schedule = Schedule("s", "0 3 * * *", Draft(queue=name, body=b"1"))
    saved = await admin.schedule(schedule)
    assert (saved.next_at > 0, saved.draft.body) == (True, b"1")
    assert [each.name for each in await admin.schedules() if each.queue_id == queue.id] == ["s"]
    assert (await admin.pause_schedule(queue.name, "s")).paused
    assert not (await admin.resume_schedule(queue.name, "s")).paused
    ran = await admin.run_schedule(queue.name, "s")
    assert (await admin.get(ran.id)).message.queue_id == queue.id
    await admin.unschedule(name, "s")
    assert (await admin.rename_queue(name, f"{name}2")).name == f"{name}2"
    await admin.delete_queue(f"{name}2", force=True)
    with pytest.raises(NotFound):
        await admin.queue(f"{name}2")


async def test_a_result_that_never_comes_raises(server: Served, client: Client) -> None:
    queue = server.queue()
    id = (await client.publish(Draft(queue=queue))).id
    assert await client.admin.result(id) is None
    (message,) = (await client.claim(queue, consumer="me")).messages
    await client.settle(message, Fail("boom"))
    with pytest.raises(JobFailed, match="boom"):
        await client.admin.result(id, wait=10)


async def test_a_server_that_is_away_is_told_as_such() -> None:
    async with Client(f"http://127.0.0.1:{free_port()}") as client:
        with pytest.raises(StoreUnreachable, match="cannot be reached"):
            await client.publish(Draft())


async def test_a_publish_without_an_answer_is_of_unknown_outcome() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    port = free_port()
    async with (
        await asyncio.start_server(silent, "127.0.0.1", port),
        Client(f"http://127.0.0.1:{port}") as client,
    ):
        with pytest.raises(OutcomeUnknown):
            await client.publish(Draft())
        with pytest.raises(StoreUnreachable):
            await client.publish(Draft(dedup=Dedup("k")))


def test_without_a_loop_the_verbs_are_the_same(server: Served) -> None:
    queue = server.queue()
    with SyncClient(f"http://127.0.0.1:{server.port}") as client:
        id = client.publish(Draft(queue=queue, body=b"1")).id
        (message,) = client.claim(queue, consumer="me", wait=10).messages
        client.complete(message, b"2")
        assert client.admin.result(id) == b"2"
        assert client.admin.get(id).state is State.COMPLETED


async def test_schemas_are_managed_as_on_a_store(server: Served, client: Client) -> None:
    queue = server.queue()
    order = {"type": "object", "properties": {"n": {"type": "integer"}}}
    added = await client.schemas.add(queue, order, compatibility="full")
    assert (added.reference, added.compatibility) == (f"{queue}@1", "full")
    assert await client.schemas.get(queue, 1) == added
    assert added in await client.schemas.list_schemas()
    bound = await client.schemas.bind(queue, queue, type="order.*")
    assert await client.schemas.list_bindings(queue) == [bound]
    stricter = {**order, "required": ["n"]}
    report = await client.schemas.check(queue, stricter)
    assert [each.pointer for each in report.breaks] == ["/n"]
    with pytest.raises(SchemaIncompatible):
        await client.schemas.add(queue, stricter)
    with pytest.raises(SchemaMismatch):
        await client.publish(Draft(queue=queue, type="order.new", body=b"[]"))
    await client.publish(Draft(queue=queue, type="order.new", body=b'{"n": 1}'))
    assert await client.schemas.draft(queue) == (stricter, 1)
    await client.schemas.unbind(queue, type="order.*")
    await client.schemas.delete(queue)
    with pytest.raises(NotFound):
        await client.schemas.get(queue)


async def test_a_topology_is_applied_as_on_a_store(server: Served, client: Client) -> None:
    name = server.queue()
    source = {"name": name, "queue": [{"name": f"{name}-orders", "max_attempts": 3}]}
    planned = await client.topology.plan(source)
    applied = await client.topology.apply(source)
    assert (planned.steps, applied.applied) == (applied.steps, True)
    assert await client.topology.export(name) == source
    scope = await client.scopes.ensure(name, description="Tests")
    assert scope == await client.scopes.get(name)
    assert (await client.scopes.archive(name)).state == "archived"
    assert scope == await client.scopes.unarchive(name)
    made = await client.admin.ensure_queue("q", scope=name, max_attempts=2)
    assert made.settings.max_attempts == 2
