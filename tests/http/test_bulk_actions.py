"""Bulk actions, and moved, edited and reprioritised messages, over HTTP."""

import signal
import time
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from penstock.client import Client
from penstock.http.auth.identity import TrustedIssuers, make_identity
from penstock.http.auth.principal import Principal
from penstock.http.handlers.bulk_actions import make_actor
from penstock.rules.access import Access
from tests.http.served import WAIT_LIMIT_S, Served, Stream
from tests.http.test_bulk import dead


def wait_until_over(server: Served, id: str) -> dict[str, Any]:
    until = time.monotonic() + WAIT_LIMIT_S
    while time.monotonic() < until:
        action: dict[str, Any] = server.get(f"/v1/bulk/{id}").json
        if action["state"] not in ("running", "counting"):
            return action
        Event().wait(0.05)
    raise AssertionError(f"bulk action {id} does not end")


def test_a_bulk_action_runs_in_the_background(server: Served) -> None:
    queue = server.queue()
    ids = dead(server, queue, 5)
    asked = {"verb": "redrive", "filter": f"state:dead queue:{queue}", "name": "after the fix"}
    started = server.post("/v1/bulk", asked)
    assert (started.status, started.json["state"]) == (202, "running")
    action = wait_until_over(server, started.json["id"])
    assert (action["state"], action["done"], action["matched"]) == ("done", 5, 5)
    assert (action["name"], action["filter"]) == ("after the fix", asked["filter"])
    assert [server.state(id) for id in ids] == ["ready"] * 5
    assert action["id"] in [each["id"] for each in server.get("/v1/bulk").json["actions"]]


def test_a_dry_run_answers_at_once(server: Served) -> None:
    queue = server.queue()
    dead(server, queue, 3)
    server.publish(queue)
    asked = {"verb": "redrive", "filter": f"queue:{queue}", "dry_run": True}
    reply = server.post("/v1/bulk", asked).json
    assert (reply["state"], reply["done"], reply["skipped"]) == ("done", 3, {"ready": 1})


def test_an_action_is_paused_resumed_and_aborted(server: Served) -> None:
    queue = server.queue()
    for _ in range(3):
        server.publish(queue)
    asked = {"verb": "cancel", "filter": f"queue:{queue}", "rate": 0.01}
    id = server.post("/v1/bulk", asked).json["id"]
    assert server.post(f"/v1/bulk/{id}/pause").json["state"] == "paused"
    assert server.post(f"/v1/bulk/{id}/resume").json["state"] == "running"
    ended = server.post(f"/v1/bulk/{id}/abort").json
    assert ended["state"] == "aborted"
    assert server.post(f"/v1/bulk/{id}/resume").status == 409
    assert server.get("/v1/bulk/999999").status == 404


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"verb": "redrive"},
        {"verb": "explode", "filter": "state:dead"},
        {"verb": "redrive", "filter": "quue:x"},
        {"verb": "redrive", "filter": "x" * 3_000},
        {"verb": "redrive", "filter": "(" * 100},
        {"verb": "redrive", "ids": []},
        {"verb": "redrive", "ids": ["x"]},
        {"verb": "redrive", "filter": "state:dead", "rate": -1},
        {"verb": "move", "filter": "state:dead"},
        {"verb": "cancel", "filter": "state:ready", "more": 1},
    ],
)
def test_a_bad_request_is_refused(server: Served, asked: dict[str, Any]) -> None:
    reply = server.post("/v1/bulk", asked)
    assert reply.status in (400, 422), reply


def test_a_message_is_moved_edited_and_reprioritised(server: Served) -> None:
    first, second = server.queue(), server.queue()
    id = server.publish(first, {"a": 1})
    edited = server.post(f"/v1/messages/{id}/edit", {"body": {"a": 2}}).json
    assert edited["replaces"] == id
    assert server.message(id)["reason"] == "replaced"
    moved = server.post(f"/v1/messages/{edited['id']}/move", {"queue": second}).json["id"]
    server.publish(second, priority=5)
    reply = server.post(f"/v1/messages/{moved}/reprioritise", {"priority": 9})
    assert reply.json == {"id": moved, "priority": 9}
    message = server.claim_one(second)
    assert (message["id"], message["body"]) == (moved, {"a": 2})
    assert server.post(f"/v1/messages/{moved}/edit", {"body": 1}).status == 409
    assert server.post(f"/v1/messages/{moved}/move", {"queue": "none"}).status == 404


@pytest.mark.anyio
async def test_the_client_runs_bulk_actions(server: Served) -> None:
    queue, other = server.queue(), server.queue()
    async with Client(f"http://127.0.0.1:{server.port}") as client:
        ids = [int(server.publish(queue, number)) for number in range(3)]
        counted = await client.bulk.start("cancel", filter=f"queue:{queue}", dry_run=True)
        assert counted.counts.done == 3
        action = await client.bulk.start("move", ids=ids[:2], queue=other)
        wait_until_over(server, str(action.id))
        assert (await client.bulk.get(action.id)).counts.done == 2
        assert action.id in [each.id for each in await client.bulk.list_actions()]
        new = (await client.admin.edit(ids[2], b"edited")).id
        await client.admin.reprioritise(new, 9)
        moved = (await client.admin.move(new, other)).id
        assert (await client.admin.get(moved)).message.body == b"edited"


def test_an_action_goes_on_after_its_server_was_killed(folder: Path) -> None:
    url = f"sqlite:///{folder}/killed.db"
    server = Served(url, folder)
    try:
        server.wait_until_ready()
        queue = server.queue()
        for _ in range(40):
            server.publish(queue)
        asked = {"verb": "cancel", "filter": f"queue:{queue}", "rate": 20}
        id = server.post("/v1/bulk", asked).json["id"]
        server.stop(signal.SIGKILL)
        server = Served(url, folder)
        server.wait_until_ready()
        action = wait_until_over(server, id)
        assert (action["state"], action["done"], action["skipped"]) == ("done", 40, {})
    finally:
        server.end()


def test_listeners_hear_of_a_bulk_action(server: Served) -> None:
    queue = server.queue()
    for _ in range(3):
        server.publish(queue)
    stream = Stream(server, kind="bulk.ended")
    try:
        asked = {"verb": "cancel", "filter": f"queue:{queue}", "rate": 1}
        id = server.post("/v1/bulk", asked).json["id"]
        ended = stream.until("bulk.ended", id)[-1]
        assert (ended["state"], ended["type"], ended["count"]) == ("done", "cancel", 3)
    finally:
        stream.close()


def test_an_action_of_a_token_may_run_until_the_token_expires() -> None:
    identity = make_identity({"sub": "ada", "exp": 7}, TrustedIssuers(), 0.0, kind="jwt")
    caller = Principal(
        identity.subject, identity.tenant, Access([]), token_until=identity.token_until
    )
    actor = make_actor(caller)
    assert (actor.subject, actor.key, actor.until) == ("jwt:ada", None, 7_000_000)


def test_an_action_covers_what_its_dry_run_counted(server: Served) -> None:
    queue = server.queue()
    counted_ids = dead(server, queue, 3)
    asked = {"verb": "purge", "filter": f"state:dead queue:{queue}"}
    counted = server.post("/v1/bulk", {**asked, "dry_run": True}).json
    (late,) = dead(server, queue, 1)
    started = server.post("/v1/bulk", {**asked, "horizon": counted["horizon"]})
    action = wait_until_over(server, started.json["id"])
    assert (action["done"], action["horizon"]) == (counted["done"], counted["horizon"])
    assert [server.state(id) for id in (*counted_ids, late)] == ["cancelled"] * 3 + ["dead"]
    now, message, history = counted["horizon"].split(".")
    for later in (f"{now}.{int(message) + 10**6}.{history}", f"{int(now) * 2}.{message}.1"):
        refused = server.post("/v1/bulk", {**asked, "horizon": later})
        assert (refused.status, refused.code) == (422, "INVALID_INPUT")
    assert server.post("/v1/bulk", {**asked, "horizon": "yesterday"}).status == 422
