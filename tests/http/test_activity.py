"""Activity and traces over HTTP: what a caller may see, in pages, and by the client."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import Client, SyncClient
from penstock.errors import FieldNotHere
from tests.http.keys import keyed, serve_with_auth
from tests.http.served import WAIT_LIMIT_S, Served


@pytest.fixture(scope="module")
def server(store: str, folder: Path) -> Iterator[Served]:
    with serve_with_auth(store, folder) as running:
        yield running


def reject(server: Served, queue: str, error: str = "no") -> None:
    server.post("/v1/reject", {"token": server.claim_one(queue)["token"], "error": error})


def test_activity_is_told_in_pages_with_acts_for_who_may_see_them(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue, type="t")
    reject(server, queue)
    server.post(f"/v1/messages/{id}/redrive")
    asked = {"filter": f"queue:{queue} OR id:{id}".join("()"), "limit": 1}
    told: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page = server.get("/v1/activity", **asked, **cursor).json
        told += page["entries"]
        if "cursor" not in page:
            break
        cursor = {"cursor": page["cursor"]}
    assert sorted(each.get("verb") or each["kind"] for each in told) == [
        "Redrive a message", "message.dead", "message.redriven",
    ]  # fmt: skip
    assert told[2]["kind"] == "message.dead"
    viewer = keyed(server, "viewer")
    seen = viewer.get("/v1/activity", filter=asked["filter"]).json["entries"]
    assert [each["kind"] for each in seen] == ["message.redriven", "message.dead"]
    assert seen[1]["error"] == "no"
    elsewhere = keyed(server, grants=["read:nothing"])
    assert elsewhere.get("/v1/activity", filter=asked["filter"]).json == {"entries": []}


@pytest.mark.anyio
async def test_a_client_follows_activity_with_acts(server: Served) -> None:
    queue = server.queue()

    async def change() -> None:
        while True:
            for path in ("pause", "resume"):
                await asyncio.to_thread(server.post, f"/v1/queues/{queue}/{path}")
            await asyncio.to_thread(server.publish, queue)
            await asyncio.to_thread(reject, server, queue)

    followed: set[tuple[str, str, str | None]] = set()
    address = f"http://127.0.0.1:{server.port}"
    async with Client(address, key=server.key) as client, asyncio.timeout(WAIT_LIMIT_S):
        entries = client.activity.follow(f"queue:{queue}", kinds=["act", "message.dead"])
        changing = asyncio.create_task(change())
        try:
            async for entry in entries:
                followed.add((entry.kind, entry.source, entry.verb))
                if len(followed) == 3:
                    break
        finally:
            changing.cancel()
            await entries.aclose()
    assert followed == {
        ("message.dead", "history", None),
        ("act", "audit", "Pause a queue"),
        ("act", "audit", "Resume a queue"),
    }


def test_a_cursor_of_activity_belongs_to_its_filter(server: Served) -> None:
    queue = server.queue()
    for _ in range(2):
        server.publish(queue)
        reject(server, queue)
    cursor = server.get("/v1/activity", filter=f"queue:{queue}", limit=1).json["cursor"]
    assert server.get("/v1/activity", cursor=cursor).code == "INVALID_TOKEN"
    refused = server.get("/v1/activity", filter="label.a:b")
    assert (refused.status, refused.code) == (422, "FIELD_NOT_HERE")


def test_a_masked_error_is_hidden_in_activity_and_traces(server: Served) -> None:
    queue = server.queue(mask=["error"])
    server.publish(queue, correlation_id=f"secret-{queue}")
    reject(server, queue, "card 4711")
    viewer = keyed(server, "viewer")
    for caller, shown in ((viewer, "***"), (server, "card 4711")):
        (told,) = caller.get("/v1/activity", filter=f"queue:{queue}", kind="message.dead").json[
            "entries"
        ]
        assert told["error"] == shown
        trace = caller.get(f"/v1/trace/secret-{queue}").json
        assert trace["messages"][0]["message"]["error"] == shown
        assert trace["events"][2]["error"] == shown
    refused = viewer.get("/v1/activity", filter=f"queue:{queue} error:4711")
    assert (refused.status, refused.code) == (403, "FIELD_MASKED")


def test_a_trace_spans_the_queues_that_the_caller_may_read(server: Served) -> None:
    first, second, third = server.queue(), server.queue(), server.queue()
    story = f"story/{first} é"
    parent = server.publish(first, correlation_id=story)
    child = server.publish(second, correlation_id=story, causation_id=parent)
    server.publish(third, correlation_id=story, causation_id=child)
    reader = keyed(server, grants=[f"read:{first}", f"read:{second}"])
    with SyncClient(f"http://127.0.0.1:{server.port}", key=reader.key) as client:
        trace = client.activity.trace(story)
        assert [
            (str(each.record.message.id), each.queue, each.depth) for each in trace.messages
        ] == [(parent, first, 0), (child, second, 1)]
        assert [event.kind for event in trace.events] == ["message.published"] * 2
        assert trace.messages[0].record.message.body == b""
    with SyncClient(f"http://127.0.0.1:{server.port}", key=server.key) as client:
        assert len(client.activity.trace(story).messages) == 3
        reject(server, first)
        page = client.activity.find(f"queue:{first}", kinds=["message.dead", "message.failed"])
        (entry,) = page.entries
        assert (entry.kind, str(entry.id), page.cursor) == ("message.dead", parent, None)
        with pytest.raises(FieldNotHere):
            client.activity.find("priority>1", limit=5)


def test_a_filter_is_completed_for_who_may_read(server: Served) -> None:
    queue = server.queue()
    viewer = keyed(server, grants=[f"read:{queue}"])
    found = viewer.get("/v1/filter/complete", text="state:dead queue:q OR", position=18).json
    assert found == {"start": 17, "items": [queue]}
    assert viewer.get("/v1/filter/complete", text="sta").json == {"start": 0, "items": ["state:"]}
    assert viewer.get("/v1/filter/complete", text="a", position=9).code == "INVALID_INPUT"
    with SyncClient(f"http://127.0.0.1:{server.port}", key=viewer.key) as client:
        assert client.filters.complete("state:de").items == ["dead"]
