"""Callbacks of a real server: word of every end, signed, until it is taken, across restarts."""

import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from penstock.client import Client
from penstock.model.message import Draft
from tests.http.receiver import Receiver
from tests.http.served import SENDING, WAIT_LIMIT_S, Served, served


def until(look: Callable[[], Any]) -> Any:
    """What the look finds, once it finds something."""
    end = monotonic() + WAIT_LIMIT_S
    while not (found := look()):
        assert monotonic() < end
    return found


def secret_of(server: Served) -> str:
    secret: str = server.get("/v1/callbacks/secret").json["secret"]
    return secret


def log_of(server: Served, id: str) -> list[Any]:
    reply = server.get(f"/v1/messages/{id}/callbacks")
    assert reply.status == 200, reply
    callbacks: list[Any] = reply.json["messages"]
    return callbacks


def complete(server: Served, queue: str, **more: object) -> None:
    token = server.claim_one(queue)["token"]
    assert server.post("/v1/complete", {"token": token, **more}).status == 200


def test_a_completed_message_is_told_of_with_its_result(caller: Served, receiver: Receiver) -> None:
    queue = caller.queue()
    id = caller.publish(queue, 1, callback=f"{receiver.url}/done/{queue}", correlation_id="c-1")
    complete(caller, queue, result={"sum": 5})
    (post,) = receiver.wait(f"/done/{queue}")
    told = post.verify(secret_of(caller))
    data = told["data"]
    assert (told["type"], told["timestamp"]) == ("message.completed", data["ended_at"])
    assert {key: data[key] for key in data.keys() - {"created_at", "ended_at"}} == {
        "id": id, "scope": "default", "queue": queue, "type": "message", "state": "completed",
        "attempts": 1, "result": {"sum": 5}, "correlation_id": "c-1",
    }  # fmt: skip
    (log,) = until(lambda: [each for each in log_of(caller, id) if each["state"] == "completed"])
    assert (log["body"]["state"], log["attempts"]) == ("completed", 1)
    assert post.id.endswith(f"-{log['id']}")
    assert caller.message(id)["callback"] == f"{receiver.url}/done/{queue}"


def test_a_failed_result_is_told_of_and_a_dead_letter_too(
    caller: Served, receiver: Receiver
) -> None:
    queue = caller.queue()
    for verb, state, reason in (("fail", "failed", None), ("reject", "dead", "rejected")):
        path = f"/{verb}/{queue}"
        caller.publish(queue, 1, callback=receiver.url + path)
        token = caller.claim_one(queue)["token"]
        assert caller.post(f"/v1/{verb}", {"token": token, "error": "broken"}).status == 200
        (post,) = receiver.wait(path)
        data = post.verify(secret_of(caller))["data"]
        assert (data["state"], data["error"], data.get("reason")) == (state, "broken", reason)


def test_a_cancelled_message_of_a_batch_is_told_of(caller: Served, receiver: Receiver) -> None:
    queue = caller.queue()
    url = f"{receiver.url}/cancelled/{queue}"
    sent = [{"queue": queue, "callback": url}, {"queue": queue}]
    ids = [
        each["id"] for each in caller.post("/v1/publish/batch", {"messages": sent}).json["items"]
    ]
    for id in ids:
        caller.post(f"/v1/messages/{id}/cancel")
    (post,) = receiver.wait(f"/cancelled/{queue}")
    assert post.json["type"] == "message.cancelled"
    assert log_of(caller, ids[1]) == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_receiver_that_fails_twice_is_told_three_times_across_a_restart(
    kind: str, receiver: Receiver, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    path = f"/flaky/{kind}"
    receiver.answers[path] = [500, 503, 200]
    if kind == "sqlite":
        retold(f"sqlite:///{tmp_path}/own.db", tmp_path, receiver, path)
        return
    with request.getfixturevalue("postgres_server").database() as url:
        retold(url, tmp_path, receiver, path)


def retold(store: str, folder: Path, receiver: Receiver, path: str) -> None:
    with served(store, folder, *SENDING) as first:
        id = first.publish("default", 1, callback=receiver.url + path)
        complete(first, "default")
        receiver.wait(path, 2)
        until(lambda: [each for each in log_of(first, id) if each["attempts"] == 2])
        first.stop(signal.SIGKILL)
    with served(store, folder, *SENDING) as second:
        posts = receiver.wait(path, 3)
        gaps = [after.at - before.at for before, after in pairwise(posts)]
        assert 1 <= gaps[0] < gaps[1]
        assert len({post.id for post in posts}) == 1
        for post in posts:
            assert post.verify(secret_of(second))["data"]["id"] == id
        (log,) = until(lambda: [e for e in log_of(second, id) if e["state"] == "completed"])
        assert [(step["state"], step.get("error")) for step in log["timeline"]] == [
            ("scheduled", "status 500"),
            ("scheduled", "status 503"),
            ("completed", None),
        ]
        assert len(receiver.of(path)) == 3


def test_a_receiver_that_is_gone_is_not_told_again(caller: Served, receiver: Receiver) -> None:
    queue = caller.queue()
    receiver.answers[f"/gone/{queue}"] = [410]
    id = caller.publish(queue, 1, callback=f"{receiver.url}/gone/{queue}")
    complete(caller, queue)
    (log,) = until(lambda: [each for each in log_of(caller, id) if each["state"] == "failed"])
    assert (log["error"], log["attempts"]) == ("status 410", 1)


def test_what_was_given_up_is_sent_again_on_request(caller: Served, receiver: Receiver) -> None:
    queue = caller.queue()
    receiver.answers[f"/again/{queue}"] = [410, 200]
    id = caller.publish(queue, 1, callback=f"{receiver.url}/again/{queue}")
    complete(caller, queue)
    (log,) = until(lambda: [each for each in log_of(caller, id) if each["state"] == "failed"])
    assert caller.post(f"/v1/messages/{log['id']}/redrive").status == 200
    assert len(receiver.wait(f"/again/{queue}", 2)) == 2
    assert len(log_of(caller, id)) == 2


def test_for_a_day_after_a_rotation_two_secrets_are_valid(
    caller: Served, receiver: Receiver
) -> None:
    old = secret_of(caller)
    rotated = caller.post("/v1/callbacks/secret/rotate").json
    new = rotated["secret"]
    assert (rotated["previous"], secret_of(caller), new != old) == (old, new, True)
    queue = caller.queue()
    caller.publish(queue, 1, callback=f"{receiver.url}/rotated/{queue}")
    complete(caller, queue)
    (post,) = receiver.wait(f"/rotated/{queue}")
    assert post.verify(old) == post.verify(new)


PRIVATE = ["http://127.0.0.1/", "http://localhost:8080/", "http://[::1]/", "http://2130706433/",
           "http://169.254.169.254/latest", "http://10.0.0.1/", "http://example.org:22/",
           "http://" + "metadata.google.internal"]  # fmt: skip


@pytest.mark.parametrize("url", PRIVATE)
def test_a_private_address_is_refused_by_default(server: Served, url: str) -> None:
    reply = server.post("/v1/publish", {"callback": url})
    assert (reply.status, reply.code) == (422, "INVALID_INPUT")
    assert [each["field"] for each in reply.json["error"]["details"]] == ["callback"]
    batch = {"messages": [{"callback": url}, {"body": 1}]}
    outcomes = server.post("/v1/publish/batch", batch).json
    assert (outcomes["published"], outcomes["refused"]) == (1, 1)
    assert outcomes["items"][0]["error"]["code"] == "INVALID_INPUT"
    assert server.post("/v1/publish/batch", {**batch, "atomic": True}).status == 422
    schedule = {"cron": "0 9 * * *", "message": {"callback": url}}
    assert server.ask("PUT", "/v1/queues/default/schedules/s", schedule).status == 422


@pytest.mark.parametrize("url", ["ftp://example.org/", "http://a@b/", "http://", "http://a/\n"])
def test_an_address_that_is_none_is_refused(caller: Served, url: str) -> None:
    assert caller.post("/v1/publish", {"callback": url}).code == "INVALID_INPUT"


def test_a_public_address_is_accepted(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue, 1, callback="https://example.org/done")
    assert server.message(id)["callback"] == "https://example.org/done"
    assert log_of(server, id) == []


def test_the_queue_of_callbacks_is_the_systems(server: Served) -> None:
    assert server.post("/v1/publish", {"queue": "_callback"}).code == "FORBIDDEN"
    assert server.post("/v1/claim", {"queues": [{"queue": "_callback"}]}).code == "FORBIDDEN"
    assert server.ask("DELETE", "/v1/queues/_callback").code == "FORBIDDEN"


@pytest.mark.anyio
async def test_a_client_asks_for_a_callback_and_reads_its_log(
    caller: Served, receiver: Receiver
) -> None:
    queue = caller.queue()
    async with Client(f"http://127.0.0.1:{caller.port}") as client:
        url = f"{receiver.url}/client/{queue}"
        id = (await client.publish(Draft(queue=queue, callback=url))).id
        assert (await client.admin.get(id)).message.meta.callback == url
        (leased,) = (await client.claim(queue, consumer="me", wait=10)).messages
        await client.complete(leased)
        receiver.wait(f"/client/{queue}")
        (told,) = await client.admin.callbacks(id)
        assert (told.message.type, told.message.meta.parent_id) == ("callback", id)


def test_a_callback_lists_the_artifacts(caller: Served, receiver: Receiver) -> None:
    queue = caller.queue()
    caller.publish(queue, 1, callback=f"{receiver.url}/files/{queue}")
    files = [{"name": "a.json", "content": "e30="}]
    complete(caller, queue, result=1, artifacts=files)
    (post,) = receiver.wait(f"/files/{queue}")
    assert post.verify(secret_of(caller))["data"]["artifacts"] == [
        {"name": "a.json", "size": 2, "content_type": "application/json"}
    ]
