"""The verbs of producers and consumers, one by one and in batches."""

import base64
from typing import Any

import pytest

from tests.http.served import Served

MORE: dict[str, dict[str, Any]] = {"fail": {"error": "no"}, "extend": {"lease": 60}}
SETTLED = {"complete": "completed", "nack": "scheduled", "reject": "dead", "release": "ready"}


def test_what_is_published_is_claimed_and_completed_with_its_result(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue, {"to": "ada"}, type="mail.send", headers={"a": "b"}, priority=3)
    message = server.claim_one(queue, consumer="me")
    shown = {key: message[key] for key in ("id", "type", "body", "headers", "priority")}
    assert shown == {"id": id, "type": "mail.send", "body": {"to": "ada"},
                     "headers": {"a": "b"}, "priority": 3}  # fmt: skip
    done = server.post("/v1/complete", {"token": message["token"], "result": [1]})
    assert (done.status, done.json) == (200, {"id": id, "state": "completed"})
    assert server.get(f"/v1/messages/{id}/result").json == [1]
    (step,) = server.message(id)["timeline"]
    assert (step["verb"], step["state"], step["consumer"]) == ("complete", "completed", "me")


@pytest.mark.parametrize("verb", SETTLED)
def test_a_settled_message_is_where_its_verb_leads(server: Served, verb: str) -> None:
    queue = server.queue()
    id = server.publish(queue)
    more = {"error": "no"} if verb in ("nack", "reject") else {}
    reply = server.post(f"/v1/{verb}", {"token": server.claim_one(queue)["token"], **more})
    assert (reply.status, reply.json["state"]) == (200, SETTLED[verb])
    assert server.state(id) == SETTLED[verb]


def test_a_nack_may_say_when_it_is_tried_again(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    token = server.claim_one(queue)["token"]
    assert server.post("/v1/nack", {"token": token, "delay": 0}).json["state"] == "ready"
    again = server.claim_one(queue)
    assert (again["id"], again["attempts"], again["deliveries"]) == (id, 1, 2)


def test_extend_moves_the_end_of_the_lease(server: Served) -> None:
    queue = server.queue()
    server.publish(queue)
    message = server.claim_one(queue, lease=30)
    reply = server.post("/v1/extend", {"token": message["token"], "lease": 600})
    assert reply.json["lease_until"] > message["lease_until"]


def test_progress_is_shown_with_the_message(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    token = server.claim_one(queue)["token"]
    assert server.post("/v1/progress", {"token": token, "percent": 40, "note": "x"}).status == 200
    assert (server.message(id)["percent"], server.message(id)["note"]) == (40.0, "x")


def test_a_message_that_runs_says_where_and_since_when(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    token = server.claim_one(queue, consumer="mill-7")["token"]
    fetched = server.message(id)
    assert (fetched["consumer"], "begun_at" in fetched) == ("mill-7", False)
    server.post("/v1/begin", {"token": token})
    (listed,) = server.get(f"/v1/messages?queue={queue}&state=claimed").json["messages"]
    assert listed["claimed_at"] == fetched["claimed_at"]
    assert listed["begun_at"] >= listed["claimed_at"]
    assert listed["consumer"] == "mill-7"


@pytest.mark.parametrize("verb", ["nack", "fail", "reject"])
def test_a_consumer_can_send_its_traceback(server: Served, verb: str) -> None:
    queue = server.queue()
    id = server.publish(queue)
    token = server.claim_one(queue)["token"]
    sent = {"token": token, "error": "no", "traceback": "at line 3\nat line 4"}
    assert server.post(f"/v1/{verb}", sent).status == 200
    (row,) = server.message(id)["timeline"]
    assert (row["error"], row["traceback"]) == ("no", "at line 3\nat line 4")


def test_begin_needs_the_lock_that_holds_the_message(server: Served) -> None:
    queue = server.queue()
    server.publish(queue)
    first = server.claim_one(queue, begins=True)
    server.post("/v1/nack", {"token": first["token"], "delay": 0})
    again = server.claim_one(queue, begins=True)
    assert again["suspect"] is True
    assert server.post("/v1/begin", {"token": again["token"]}).status == 200
    assert server.post("/v1/begin", {"token": first["token"]}).code == "LOCK_LOST"


def test_a_consumer_hears_of_a_cancel_request(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    token = server.claim_one(queue)["token"]
    asked = server.post(f"/v1/messages/{id}/cancel").json
    assert asked == {"id": id, "state": "claimed", "cancel_requested": True}
    assert server.post("/v1/extend", {"token": token, "lease": 9}).json["cancel_requested"] is True
    assert server.post("/v1/release", {"token": token}).json["state"] == "cancelled"


def test_an_empty_claim_says_how_the_queue_is(server: Served) -> None:
    queue = server.queue()
    asked = {"queues": [{"queue": queue}]}
    assert server.post("/v1/claim", asked).json == {"messages": [], "queues": {queue: "active"}}
    server.publish(queue)
    server.post(f"/v1/queues/{queue}/pause")
    assert server.post("/v1/claim", asked).json == {"messages": [], "queues": {queue: "paused"}}
    server.post(f"/v1/queues/{queue}/resume")
    assert len(server.claim(queue)) == 1


def test_a_claim_takes_of_several_queues_and_only_the_types_it_names(server: Served) -> None:
    first, second = server.queue(), server.queue()
    wanted = {server.publish(first, type="a"), server.publish(second, type="b")}
    server.publish(first, type="c")
    asked = [{"queue": first, "types": ["a"]}, {"queue": second}]
    found = server.post("/v1/claim", {"queues": asked, "limit": 10}).json["messages"]
    assert {message["id"] for message in found} == wanted
    assert {message["queue"] for message in found} == {first, second}


def test_more_queues_than_16_are_refused(server: Served) -> None:
    asked = {"queues": [{"queue": f"q{number}"} for number in range(17)]}
    assert (server.post("/v1/claim", asked).status, server.post("/v1/claim", {}).status) == (
        422,
        422,
    )


def test_any_bytes_come_back_as_they_were(server: Served) -> None:
    queue, body = server.queue(), bytes(range(256))
    text = base64.b64encode(body).decode()
    sent = {"queue": queue, "body_base64": text, "content_type": "image/png"}
    assert server.post("/v1/publish", sent).status == 201
    message = server.claim_one(queue)
    assert (message["body_base64"], message["content_type"]) == (text, "image/png")
    assert "body" not in message


@pytest.mark.parametrize("body", ['{"a":  1.0, "a": 2}', "1e400", "[1,2 , 3]"])
def test_json_is_kept_as_it_was_written(server: Served, body: str) -> None:
    queue = server.queue()
    sent = f'{{"queue": "{queue}", "body": {body}}}'.encode()
    assert server.post("/v1/publish", sent).status == 201
    claimed = server.post("/v1/claim", {"queues": [{"queue": queue}]})
    message = claimed.json["messages"][0]
    if "body_base64" in message:
        assert base64.b64decode(message["body_base64"]).decode() == body
    else:
        assert f'"body":{body},'.encode() in claimed.body


def test_a_batch_publishes_what_is_right_and_says_what_is_not(server: Served) -> None:
    queue = server.queue(max_body=10)
    good, bad = {"queue": queue, "body": 1}, {"queue": queue, "body": "x" * 20}
    reply = server.post("/v1/publish/batch", {"messages": [good, bad, {"queue": "nowhere"}]})
    assert (reply.status, reply.json["published"], reply.json["refused"]) == (200, 1, 2)
    first, *others = reply.json["items"]
    assert server.state(first["id"]) == "ready"
    assert [item["error"]["code"] for item in others] == ["BODY_TOO_LARGE", "NOT_FOUND"]


def test_an_atomic_batch_is_published_whole_or_not_at_all(server: Served) -> None:
    queue = server.queue()
    server.publish(queue, name="taken")
    messages = [{"queue": queue, "body": 1}, {"queue": queue, "name": "taken"}]
    reply = server.post("/v1/publish/batch", {"messages": messages, "atomic": True})
    assert (reply.status, reply.code) == (409, "NAME_TAKEN")
    assert len(server.claim(queue, limit=10)) == 1


@pytest.mark.parametrize("verb", ["complete", "fail", "nack", "reject", "release", "extend"])
def test_in_a_batch_each_item_answers_for_itself(server: Served, verb: str) -> None:
    queue = server.queue()
    ids = [server.publish(queue) for _ in range(3)]
    tokens = [message["token"] for message in server.claim(queue, limit=3)]
    server.post("/v1/release", {"token": tokens[1]})
    server.claim_one(queue)
    more = MORE.get(verb, {})
    items = [{"token": token, **more} for token in (*tokens, "1.2.forged")]
    reply = server.post(f"/v1/{verb}/batch", {"items": items}).json
    assert (reply["done"], reply["refused"]) == (2, 2)
    assert [item.get("id") for item in reply["items"]] == [*ids, None]
    codes = [item.get("error", {}).get("code") for item in reply["items"]]
    assert codes == [None, "ALREADY_SETTLED" if verb == "release" else "LOCK_LOST", None,
                     "INVALID_TOKEN"]  # fmt: skip


@pytest.mark.parametrize("verb", ["begin", "progress"])
def test_marks_come_in_batches_too(server: Served, verb: str) -> None:
    queue = server.queue()
    for _ in range(2):
        server.publish(queue)
    for message in server.claim(queue, limit=2):
        server.post("/v1/nack", {"token": message["token"], "delay": 0})
    tokens = [message["token"] for message in server.claim(queue, limit=2)]
    items = [{"token": token} for token in tokens]
    assert server.post(f"/v1/{verb}/batch", {"items": items}).json["done"] == 2


def test_the_same_key_is_the_same_message(server: Served) -> None:
    queue = server.queue()
    sent = {"queue": queue, "body": 1, "dedup": {"key": "k"}}
    first = server.post("/v1/publish", sent).json
    assert first["duplicate"] is False
    assert server.post("/v1/publish", sent).json == {"id": first["id"], "duplicate": True}
    other = server.post("/v1/publish", {**sent, "body": 2})
    assert (other.status, other.code) == (409, "IDEMPOTENCY_CONFLICT")
    unique = {"queue": queue, "unique": "u"}
    assert server.post("/v1/publish", unique).json["duplicate"] is False
    assert server.post("/v1/publish", unique).json["duplicate"] is True


def test_scopes_are_apart(server: Served) -> None:
    queue = server.queue()
    scope = f"scope-{queue}"
    assert server.post("/v1/scopes", {"name": scope}).status == 201
    assert server.post("/v1/publish", {"queue": queue}, scope=scope).status == 404
    assert server.post("/v1/queues", {"name": queue}, scope=scope).status == 201
    assert server.post("/v1/publish", {"queue": queue}, scope=scope).status == 201
    assert server.claim(queue) == []
    asked = {"queues": [{"queue": queue}]}
    assert len(server.post("/v1/claim", asked, scope=scope).json["messages"]) == 1
