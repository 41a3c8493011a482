"""Steps, signals and callback URLs over HTTP."""

import asyncio

from penstock import stores
from penstock.broker.local import Broker
from penstock.model.message import NEVER
from penstock.model.store_types import Lock
from tests.http.served import Served


def make_token(store: str, id: int, expires_at: int) -> str:
    async def make() -> str:
        async with Broker(await stores.open(store)) as broker:
            return await broker.waits.make_token(Lock(id, 0), "paid", expires_at)

    return asyncio.run(make())


def test_a_signal_is_stored_once_per_key(server: Served) -> None:
    id = server.publish(server.queue())
    path = f"/v1/messages/{id}/signals/paid"
    first = server.post(path, {"body": {"amount": 3}, "key": "k"})
    assert (first.status, first.json["state"]) == (201, "ready")
    again = server.post(path, {"body": {"amount": 3}, "key": "k"})
    assert again.json == {**first.json, "duplicate": True}
    other = server.post(path, {"body": 4, "key": "k"})
    assert (other.status, other.code) == (409, "IDEMPOTENCY_CONFLICT")


def test_a_signal_that_cannot_be_stored_is_refused(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    assert server.post("/v1/messages/999999999/signals/paid", {"body": 1}).status == 404
    assert server.post(f"/v1/messages/{id}/signals/no%20good", {"body": 1}).status == 422
    large = server.post(f"/v1/messages/{id}/signals/paid", {"body": "x" * 70_000})
    assert (large.status, large.code) == (422, "INVALID_INPUT")
    server.post(f"/v1/messages/{id}/cancel")
    ended = server.post(f"/v1/messages/{id}/signals/paid", {"body": 1})
    assert (ended.status, ended.code) == (409, "INVALID_STATE")


def test_a_message_without_steps_lists_none(server: Served) -> None:
    id = server.publish(server.queue())
    assert server.get(f"/v1/messages/{id}/steps").json == {"steps": []}


def test_a_callback_url_sends_one_signal(server: Served, store: str) -> None:
    id = server.publish(server.queue())
    token = make_token(store, int(id), NEVER)
    assert server.get(f"/v1/signals/{token}").status == 405
    assert server.ask("HEAD", f"/v1/signals/{token}").status == 405
    first = server.post(f"/v1/signals/{token}", {"paid": True})
    again = server.post(f"/v1/signals/{token}", {"paid": False})
    assert (first.json.get("duplicate"), again.json["duplicate"]) == (None, True)
    assert first.json["id"] == again.json["id"]
    assert server.post(f"/v1/signals/{token[:-2]}xx", 1).status == 404
    expired = server.post(f"/v1/signals/{make_token(store, int(id), 1)}", 1)
    assert (expired.status, expired.code) == (410, "TOKEN_EXPIRED")
    server.post(f"/v1/messages/{id}/cancel")
    ended = server.post(f"/v1/signals/{make_token(store, int(id), NEVER - 1)}", 1)
    assert (ended.status, ended.code) == (410, "TOKEN_EXPIRED")


def test_a_redrive_from_an_unknown_step_names_the_known_ones(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    refused = server.post(f"/v1/messages/{id}/redrive", {"from_step": "pay"})
    assert (refused.status, refused.code) == (409, "INVALID_STATE")


def test_a_callback_url_takes_a_limited_number_of_requests(server: Served, store: str) -> None:
    id = server.publish(server.queue())
    token, other = make_token(store, int(id), NEVER - 2), make_token(store, int(id), NEVER - 3)
    replies = (server.post(f"/v1/signals/{token}", 1) for _ in range(1_000))
    refused = next(reply for reply in replies if reply.status != 200)
    assert (refused.status, refused.code) == (429, "RATE_LIMITED")
    assert server.post(f"/v1/signals/{other}", 1).status == 200
