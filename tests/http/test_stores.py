"""The service on the other stores: a message, tokens, long polls, events, callbacks, notices."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.http.receiver import Receiver
from tests.http.served import SENDING, Later, Served, Stream, served


@pytest.fixture(scope="module", params=["mariadb", "redis"])
def other(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    home: Path = tmp_path_factory.mktemp(request.param)
    store = request.getfixturevalue(f"{request.param}_server")
    with store.database() as url, served(url, home, *SENDING) as running:
        yield running


def test_a_message_makes_its_way(other: Served) -> None:
    queue = other.queue()
    id = other.publish(queue, {"a": 1}, name="n")
    message = other.claim_one(queue, consumer="me")
    assert (message["id"], message["body"]) == (id, {"a": 1})
    done = other.post("/v1/complete", {"token": message["token"], "result": 2})
    assert done.json == {"id": id, "state": "completed"}
    again = other.post("/v1/complete", {"token": message["token"], "result": 2})
    assert (again.status, again.code) == (409, "ALREADY_SETTLED")
    assert other.get(f"/v1/messages/{queue}/n").json["state"] == "completed"
    assert other.get(f"/v1/messages/{id}/result").json == 2


def test_a_schema_refuses_a_body(other: Served) -> None:
    queue = other.queue()
    other.post(f"/v1/schemas/{queue}", {"schema": {"type": "object"}})
    other.put(f"/v1/queues/{queue}/schemas", {"schema": queue})
    assert other.post("/v1/publish", {"queue": queue, "body": 1}).code == "SCHEMA_MISMATCH"
    assert other.post("/v1/publish", {"queue": queue, "body": {}}).status == 201


def test_a_waiting_claim_is_answered_when_a_message_comes(other: Served) -> None:
    queue = other.queue()
    claim = Later(other.claim, queue, wait=30)
    id = other.publish(queue)
    assert [message["id"] for message in claim.result()] == [id]


def test_an_old_token_settles_nothing(other: Served) -> None:
    queue = other.queue()
    other.publish(queue)
    old = other.claim_one(queue)["token"]
    other.post("/v1/nack", {"token": old, "delay": 0})
    other.claim_one(queue)
    assert other.post("/v1/complete", {"token": old}).code == "LOCK_LOST"


def test_events_are_told_and_resumed(other: Served) -> None:
    queue = other.queue()
    with closing(Stream(other, queue=queue)) as stream:
        first = other.publish(queue)
        other.post("/v1/complete", {"token": other.claim_one(queue)["token"]})
        assert stream.until("message.completed", first)
        last = stream.last
    second = other.publish(queue)
    with closing(Stream(other, last, queue=queue)) as again:
        assert again.until("message.published", second)


def test_batches_lists_and_stats_work(other: Served) -> None:
    queue = other.queue()
    sent = {"messages": [{"queue": queue, "body": number} for number in range(20)]}
    assert other.post("/v1/publish/batch", sent).json["published"] == 20
    page = other.get("/v1/messages", queue=queue, limit=15).json
    rest = other.get("/v1/messages", queue=queue, limit=15, cursor=page["cursor"]).json
    assert len(page["messages"]) + len(rest["messages"]) == 20
    items = [{"token": each["token"]} for each in other.claim(queue, limit=20)]
    assert other.post("/v1/complete/batch", {"items": items}).json["done"] == 20
    assert other.get("/v1/stats").status == 200


def test_a_callback_tells_of_the_end(other: Served, receiver: Receiver) -> None:
    queue = other.queue()
    id = other.publish(queue, callback=f"{receiver.url}/done/{queue}")
    other.post("/v1/complete", {"token": other.claim_one(queue)["token"], "result": 7})
    (post, *_) = receiver.wait(f"/done/{queue}")
    told = post.verify(other.get("/v1/callbacks/secret").json["secret"])
    assert (told["data"]["id"], told["data"]["state"]) == (id, "completed")


def test_a_subscriber_is_told_of_work(other: Served, receiver: Receiver) -> None:
    queue = other.queue()
    sent = {"url": f"{receiver.url}/work/{queue}", "queues": [queue], "min_interval": 1}
    assert other.post("/v1/subscriptions", sent).status == 201
    other.publish(queue)
    (post, *_) = receiver.wait(f"/work/{queue}")
    notice = post.json["data"]
    # The depth was counted some seconds ago, perhaps before the publish.
    assert notice.pop("depth") in (0, 1)
    assert notice == {
        "scope": "default",
        "queue": queue,
        "types": [],
        "claim_url": "/v1/claim",
        "claim": {"queues": [{"queue": queue, "types": []}]},
    }
