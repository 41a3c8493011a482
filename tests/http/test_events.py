"""Live events: of any server, without bodies, resumed without a gap; slow listeners are let go."""

import asyncio
import json
import socket
from asyncio import Runner
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from penstock import stores
from penstock.broker.local import Broker
from tests.cli.terminal import until
from tests.http.served import Later, Served, Stream, served

CROWD = 300


@pytest.fixture
def queue(server: Served) -> str:
    return server.queue()


@pytest.fixture
def stream(server: Served, queue: str) -> Iterator[Stream]:
    with closing(Stream(server, queue=queue)) as found:
        yield found


def test_a_listener_hears_of_publish_claim_and_complete(
    server: Served, queue: str, stream: Stream
) -> None:
    id = server.publish(queue, {"secret": "body"}, type="t", correlation_id="c-1")
    assert stream.event()["kind"] == "message.published"
    server.post("/v1/complete", {"token": server.claim_one(queue, consumer="me")["token"]})
    claimed, completed = stream.event(), stream.event()
    assert (claimed["kind"], claimed["id"], claimed["consumer"]) == ("message.claimed", id, "me")
    assert {key: completed[key] for key in completed if key != "at"} == {
        "kind": "message.completed", "scope": "default", "queue": queue, "id": id, "type": "t",
        "state": "completed", "attempts": 1, "consumer": "me", "correlation_id": "c-1",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        ("fail", "message.failed"),
        ("nack", "message.retried"),
        ("reject", "message.dead"),
        ("release", "message.released"),
    ],
)
def test_every_end_of_a_delivery_is_told(
    server: Served, queue: str, stream: Stream, verb: str, kind: str
) -> None:
    id = server.publish(queue)
    more = {} if verb == "release" else {"error": "no"}
    server.post(f"/v1/{verb}", {"token": server.claim_one(queue)["token"], **more})
    assert stream.until(kind, id)[-1].get("error") == more.get("error")


@pytest.mark.parametrize("batch", [False, True], ids=["one", "batch"])
def test_an_extension_names_its_queue(
    server: Served, queue: str, stream: Stream, batch: bool
) -> None:
    id = server.publish(queue)
    item = {"token": server.claim_one(queue)["token"], "lease": 60}
    sent = {"items": [item]} if batch else item
    assert server.post("/v1/extend/batch" if batch else "/v1/extend", sent).status == 200
    extended = stream.until("message.extended", id)[-1]
    assert (extended["scope"], extended["queue"]) == ("default", queue)


def test_operators_acts_are_told(server: Served, queue: str, stream: Stream) -> None:
    server.post(f"/v1/queues/{queue}/pause")
    paused = stream.event()
    assert (paused["kind"], paused["state"]) == ("queue.changed", "paused")
    id = server.publish(queue)
    server.post(f"/v1/messages/{id}/cancel")
    assert stream.until("message.cancelled", id)
    server.post(f"/v1/messages/{id}/redrive")
    assert stream.event()["kind"] == "message.published"


def test_a_message_is_announced_once(server: Served, queue: str, stream: Stream) -> None:
    ids = [server.publish(queue) for _ in range(3)]
    server.post(f"/v1/messages/{ids[-1]}/cancel")
    seen = stream.until("message.cancelled", ids[-1])
    assert [event["id"] for event in seen] == [*ids, ids[-1]]


def test_what_another_server_does_is_told_too(
    server: Served, queue: str, stream: Stream, store: str, folder: Path
) -> None:
    with served(store, folder) as other:
        id = other.publish(queue)
        other.post("/v1/complete", {"token": other.claim_one(queue)["token"]})
        kinds = [event["kind"] for event in stream.until("message.completed", id)]
    assert sorted(kinds[:-1]) == ["message.claimed", "message.published"]


def test_a_filter_leaves_the_rest_out(server: Served, queue: str) -> None:
    other = server.queue()
    with closing(Stream(server, queue=[queue, other], kind="message.cancelled")) as stream:
        for name in (queue, other):
            id = server.publish(name)
            server.post(f"/v1/messages/{id}/cancel")
            event = stream.event()
            assert (event["kind"], event["queue"], event["id"]) == ("message.cancelled", name, id)


def test_an_unknown_kind_is_refused(server: Served) -> None:
    assert server.get("/v1/events", kind="message.lost").code == "INVALID_INPUT"


def test_a_listener_who_comes_back_misses_nothing(server: Served, queue: str) -> None:
    with closing(Stream(server, queue=queue)) as first:
        server.publish(queue)
        assert first.event()["kind"] == "message.published"
        last = first.last
    ids = [server.publish(queue) for _ in range(5)]
    for message in server.claim(queue, limit=3):
        server.post("/v1/complete", {"token": message["token"]})
    with closing(Stream(server, last, queue=queue)) as again:
        marker = server.publish(queue)
        seen = again.until("message.published", marker)
    published = [event["id"] for event in seen if event["kind"] == "message.published"]
    assert set(ids) <= set(published)
    assert sum(event["kind"] == "message.completed" for event in seen) >= 3


class DataOnlyClient:
    """Remembers the ids of frames with data alone, as npm's `eventsource` does."""

    def __init__(self, server: Served, queue: str) -> None:
        self.server = server
        self.queue = queue
        self.last: str | None = None

    def connect(self) -> Stream:
        stream = Stream(self.server, self.last, queue=self.queue, kind="message.published")
        self.remember(stream.hello)
        return stream

    def remember(self, frame: dict[str, str]) -> None:
        if "data" in frame:
            self.last = frame.get("id", self.last)

    def read_until(self, stream: Stream, id: str) -> list[str]:
        seen: list[str] = []
        while id not in seen:
            frame = stream.frame()
            assert frame, "the stream ended"
            self.remember(frame)
            if "data" in frame:
                seen.append(json.loads(frame["data"])["id"])
        return seen


@pytest.fixture
def client(server: Served, queue: str) -> DataOnlyClient:
    return DataOnlyClient(server, queue)


def test_a_client_that_forgets_ids_without_data_misses_nothing(
    server: Served, queue: str, client: DataOnlyClient
) -> None:
    with closing(client.connect()) as stream:
        before = [server.publish(queue) for _ in range(3)]
        assert client.read_until(stream, before[-1]) == before
    missed = [server.publish(queue) for _ in range(4)]
    with closing(client.connect()) as stream:
        seen = client.read_until(stream, missed[-1])
    assert [id for id in seen if id in missed] == missed


def test_a_client_that_was_cut_off_before_its_first_event_misses_nothing(
    server: Served, queue: str, client: DataOnlyClient
) -> None:
    client.connect().close()
    missed = [server.publish(queue) for _ in range(2)]
    with closing(client.connect()) as stream:
        assert client.read_until(stream, missed[-1]) == missed


def test_every_event_has_an_id_and_it_moves_on(server: Served, queue: str, stream: Stream) -> None:
    assert (stream.hello["event"], json.loads(stream.hello["data"])["kind"]) == (
        "stream.opened", "stream.opened",
    )  # fmt: skip
    first = stream.hello["id"]

    def next_id() -> str:
        server.publish(queue)
        frame = stream.frame()
        # A sign of life has no data.
        while "data" not in frame:
            frame = stream.frame()
        return frame["id"]

    last = until(lambda: (found := next_id()) != first and found)
    server.post(f"/v1/queues/{queue}/pause")
    frame = stream.frame()
    while frame.get("event") != "queue.changed":
        frame = stream.frame()
    assert frame["id"] >= last
    with closing(Stream(server, last, queue=queue)) as again:
        marker = server.publish(queue)
        assert again.until("message.published", marker)


def test_a_made_up_event_id_is_refused(server: Served) -> None:
    for last in ("x", "1", "1-", "1-2-3", "-", f"{'9' * 40}-1"):
        reply = server.ask("GET", "/v1/events", headers={"Last-Event-ID": last})
        assert (reply.status, reply.code) == (400, "INVALID_TOKEN"), last


def test_a_row_that_is_committed_late_is_told_late_and_not_left_out(
    server: Served, store: str, queue: str, stream: Stream
) -> None:
    if not store.startswith("postgresql"):
        pytest.skip("SQLite has one writer at a time")
    ids = [server.publish(queue) for _ in range(2)]
    tokens = {each["id"]: each["token"] for each in server.claim(queue, limit=2)}
    with psycopg.connect(store) as late:
        late.execute(
            "WITH held AS (DELETE FROM penstock.lease WHERE id = %s RETURNING *)"
            " INSERT INTO penstock.history (id, queue_id, verb, state, attempts, deliveries,"
            " consumer, fence, claimed_at, at, final) SELECT id, queue_id, 'complete', 'completed',"
            " 1, 1, 'late', fence, claimed_at, penstock.moment(), true FROM held",
            (int(ids[0]),),
        )
        server.post("/v1/complete", {"token": tokens[ids[1]]})
        stream.until("message.completed", ids[1])
    assert stream.until("message.completed", ids[0])[-1]["consumer"] == "late"


def test_a_stop_ends_the_streams_and_the_process(own_server: Served) -> None:
    queue = own_server.queue()
    streams = [Stream(own_server, queue=queue) for _ in range(3)]
    stopping = Later(own_server.stop)
    frames = [stream.frame() for stream in streams]
    assert frames == [{"": "the server stops"}] * 3
    assert stopping.result() == 0
    for stream in streams:
        stream.close()


def test_a_listener_who_does_not_read_is_let_go(own_server: Served) -> None:
    queue = own_server.queue()
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.connect(("127.0.0.1", own_server.port))
        deaf.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert deaf.recv(15) == b"HTTP/1.1 200 OK"
        item = {"queue": queue, "type": "t" * 200, "correlation_id": "c" * 200}
        listeners = 1.0
        for _ in range(60):
            own_server.post("/v1/publish/batch", {"messages": [item] * 1_000})
            listeners = gauge(own_server, "penstock_listeners")
            if not listeners:
                break
        assert listeners == 0
    assert own_server.get("/healthz").status == 200


def gauge(server: Served, name: str) -> float:
    lines = server.get("/metrics").body.decode().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))


def test_the_events_of_a_stream_are_json(server: Served, queue: str, stream: Stream) -> None:
    server.publish(queue, type='"\\ \u2028 é')
    assert json.loads(json.dumps(stream.event()))["type"] == '"\\ \u2028 é'


def test_a_crowd_that_comes_at_once_and_again_hears_everything(store: str, tmp_path: Path) -> None:
    """None of them takes the store away from the others, or from who publishes."""
    url = store if "sqlite" in store else f"{store}{'&' if '?' in store else '?'}pool_size=2"
    with served(url, tmp_path) as server, ThreadPoolExecutor(CROWD) as pool:
        queue = server.queue()
        crowd = list(pool.map(lambda _: Stream(server, queue=queue), range(CROWD)))
        ids = [server.publish(queue)]
        assert all(stream.until("message.published", ids[0]) for stream in crowd)
        for stream in crowd:
            stream.close()
        ids += [server.publish(queue) for _ in range(3)]
        again = list(pool.map(lambda each: Stream(server, each.last, queue=queue), crowd))
        for stream in again:
            seen = [event["id"] for event in stream.until("message.published", ids[-1])]
            assert seen[-3:] == ids[-3:]
            stream.close()


def test_claims_of_a_worker_elsewhere_reach_the_listeners_of_every_server(
    store: str, server: Served, queue: str, folder: Path
) -> None:
    kinds = ["message.claimed", "message.extended", "message.completed"]
    with (
        served(store, folder) as other,
        closing(Stream(server, queue=queue, kind=kinds)) as here,
        closing(Stream(other, queue=queue, kind=kinds)) as there,
        Runner() as elsewhere,
    ):
        id = server.publish(queue, type="t", correlation_id="c-9")
        broker = Broker(elsewhere.run(stores.open(store)))
        (held,) = elsewhere.run(broker.claim(queue, consumer="elsewhere")).messages
        for stream in (here, there):
            claimed = stream.until("message.claimed", id)[-1]
            assert {key: claimed[key] for key in claimed if key != "at"} == {
                "kind": "message.claimed", "scope": "default", "queue": queue, "id": id,
                "type": "t", "state": "claimed", "consumer": "elsewhere", "correlation_id": "c-9",
            }  # fmt: skip
        elsewhere.run(broker.extend(held, 600))
        for stream in (here, there):
            assert [event["kind"] for event in stream.until("message.extended", id)] == [
                "message.extended"
            ]
        elsewhere.run(broker.complete(held))
        elsewhere.run(broker.close())
        for stream in (here, there):
            assert [event["kind"] for event in stream.until("message.completed", id)] == [
                "message.completed"
            ]


def test_a_delivery_that_nobody_saw_is_told_from_its_history(
    store: str, server: Served, queue: str, stream: Stream
) -> None:
    id = server.publish(queue)

    async def run_quickly() -> None:
        async with await stores.open(store) as opened:
            broker = Broker(opened)
            (held,) = (await broker.claim(queue, consumer="elsewhere")).messages
            await broker.complete(held)

    asyncio.run(run_quickly())
    told = stream.until("message.completed", id)
    assert [event["kind"] for event in told].count("message.claimed") == 1
    assert told[-2]["kind"] == "message.claimed"


def test_a_stream_is_filtered_by_what_events_carry(server: Served, queue: str) -> None:
    filter = f"queue:{queue} type:order.* (state:completed OR -consumer:*)"
    with closing(Stream(server, filter=filter)) as stream:
        server.publish(queue, type="mail")
        id = server.publish(queue, type="order.new")
        for held in (server.claim_one(queue), server.claim_one(queue)):
            server.post("/v1/complete", {"token": held["token"]})
        told = stream.until("message.completed", id)
        assert [(event["kind"], event["id"]) for event in told] == [
            ("message.published", id),
            ("message.completed", id),
        ]


@pytest.mark.parametrize("filter", ["body.n:1", "age>1h", "label.a:b", "priority>1"])
def test_a_field_that_events_lack_is_refused_by_name(server: Served, filter: str) -> None:
    refused = server.get("/v1/events", filter=filter)
    assert (refused.status, refused.code) == (422, "FIELD_NOT_HERE")
    assert server.get("/v1/events", filter="quue:x").code == "INVALID_INPUT"
