"""Workflows over HTTP and by the remote client."""

import pytest

from penstock.client import Client
from penstock.model.message import Draft, State
from penstock.model.workflow import NodeDraft, WorkflowState
from tests.http.served import Served


def test_a_workflow_is_started_listed_and_cancelled(server: Served) -> None:
    queue = server.queue()
    message = {"queue": queue, "type": "t"}
    nodes = [{"message": message}, {"message": message, "after": [0], "label": "last"}]
    sent = {"name": "nightly", "key": f"k-{queue}", "nodes": nodes}
    started = server.post("/v1/workflows", sent)
    assert (started.status, started.json["duplicate"]) == (201, False)
    again = server.post("/v1/workflows", sent).json
    assert again == {**started.json, "duplicate": True}
    other = server.post("/v1/workflows", {**sent, "nodes": nodes[:1]})
    assert (other.status, other.code) == (409, "IDEMPOTENCY_CONFLICT")
    path = f"/v1/workflows/{started.json['id']}"
    shown = server.get(path).json
    assert [(node["state"], node.get("label")) for node in shown["nodes"]] == [
        ("ready", None),
        ("scheduled", "last"),
    ]
    listed = server.get("/v1/workflows", state="running").json["workflows"]
    assert started.json["id"] in [each["id"] for each in listed]
    assert server.post(f"{path}/redrive").code == "INVALID_STATE"
    assert server.post(f"{path}/cancel").json == {"messages": 2}
    assert server.get(path).json["state"] == "cancelled"
    assert server.post(f"{path}/redrive").json == {"messages": 2}


def test_a_graph_that_cannot_run_is_refused_whole(server: Served) -> None:
    queue = server.queue()
    message = {"queue": queue}
    for nodes in (
        [{"message": message, "after": [1]}, {"message": message, "after": [0]}],
        [{"message": message, "after": [5]}],
        [{"message": message}, {"message": {"queue": queue, "name": "n"}, "after": [0]}],
        [],
    ):
        assert server.post("/v1/workflows", {"name": "w", "nodes": nodes}).status == 422
    missing = [{"message": message}, {"message": {"queue": "nowhere"}}]
    assert server.post("/v1/workflows", {"name": "w", "nodes": missing}).status == 404
    assert server.claim(queue) == []


@pytest.mark.anyio
async def test_the_client_starts_and_shows_a_workflow(server: Served) -> None:
    queue = server.queue()
    nodes = [NodeDraft(draft=Draft(queue=queue)), NodeDraft(draft=Draft(queue=queue), after=(0,))]
    async with Client(f"http://127.0.0.1:{server.port}") as client:
        started = await client.workflows.start("w", nodes)
        view = await client.workflows.get(started.id)
        assert view.states == (State.READY, State.SCHEDULED)
        assert view.workflow.nodes[1].after == (0,)
        assert await client.workflows.cancel(started.id) == 2
        assert (await client.workflows.get(started.id)).workflow.state is WorkflowState.CANCELLED
