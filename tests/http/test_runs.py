"""Durable steps of workers over HTTP: the same handlers, with the URL of a server."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock import Context, Penstock, stores
from penstock.broker.local import Broker
from penstock.client import Client
from penstock.model.message import State
from penstock.model.waiting import CancelledTree
from penstock.rules.human import Person
from tests.cli.terminal import until
from tests.http.served import Served

pytestmark = pytest.mark.anyio
BOSS = Person("boss", acts_for_all=True, sees_all=True)


@pytest.fixture
async def app(server: Served) -> AsyncIterator[Penstock]:
    made = Penstock(f"http://127.0.0.1:{server.port}")
    yield made
    await made.aclose()


async def test_a_remote_run_has_steps_sleeps_signals_and_children(
    app: Penstock, server: Served
) -> None:
    queue = server.queue()
    charged: list[int] = []

    @app.task(queue=queue)
    async def part(number: int) -> int:
        return 10 * number

    def charge() -> int:
        charged.append(1)
        return 7

    @app.task(queue=queue)
    async def main(context: Context) -> list[Any]:
        paid = await context.step("charge", charge)
        await context.sleep(0.05)
        parts = await context.gather(part.call(1), part.call(2))
        extra = await context.enqueue(part.call(3))
        answer = await context.signal("go", type=int)
        late = await context.signal("never", timeout=0.05)
        return [paid, answer, late, extra > 0, *(each.value for each in parts)]

    async with await app.worker():
        job = await main.aenqueue()
        await app.asignal(job.id, "go", 9)
        assert await job.aresult(30) == [7, 9, None, True, 10, 20]
    assert charged == [1]
    steps = server.get(f"/v1/messages/{job.id}/steps").json["steps"]
    names = [step["name"] for step in steps]
    assert names == ["charge", "sleep", "gather", "enqueue", "go", "never"]


async def test_a_remote_run_waits_for_a_person_in_a_thread(
    app: Penstock, server: Served, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_PUBLIC_URL", "https://queue.example.org")

    @app.task(queue=server.queue())
    def ask(context: Context) -> list[str]:
        url = context.sync.callback_url("paid")
        answer = context.sync.approve({"title": "Ship it?"})
        return [answer.choice, url.rpartition("/")[0]]

    async with await app.worker(), Broker(await stores.open(store)) as broker:
        job = await ask.aenqueue()

        await broker.inbox.decide(await find_child(broker, job.id), BOSS, "approve")
        assert await job.aresult(30) == ["approve", "https://queue.example.org/v1/signals"]


async def find_child(broker: Broker, parent_id: int) -> int:
    """Returns the human step of a message, as soon as it is there."""
    while True:
        for found in await broker.inbox.list_steps(BOSS, view="all"):
            record = await broker.store.get(found.step.id)
            if record is not None and record.message.meta.parent_id == parent_id:
                return found.step.id
        await asyncio.sleep(0.02)


def claim(server: Served, queue: str) -> dict[str, Any]:
    found: list[dict[str, Any]]
    found = server.post("/v1/claim", {"queues": [{"queue": queue}]}).json["messages"]
    return found[0]


def test_another_language_stores_a_step_and_waits(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    token = claim(server, queue)["token"]
    step = {"name": "charge", "position": 1, "result": {"paid": 12}}
    stored = server.post("/v1/step", {"token": token, "step": step})
    assert (stored.status, stored.json["result"]) == (200, {"paid": 12})
    again = {"token": token, "step": {**step, "result": 99}}
    assert server.post("/v1/step", again).json["result"] == {"paid": 12}
    wait = {"token": token, "holds": [{"kind": "signal", "name": "go"}]}
    waited = server.post("/v1/wait", wait)
    assert (waited.status, waited.json["state"]) == (200, "scheduled")
    timeline = server.get(f"/v1/messages/{id}").json["timeline"]
    assert timeline[-1]["reason"] == "signal:go"
    assert server.post("/v1/wait", wait).code == "ALREADY_SETTLED"
    assert server.post("/v1/step", again).code == "LOCK_LOST"
    server.post(f"/v1/messages/{id}/signals/go", {"body": 1})

    found: list[dict[str, Any]] = []

    def is_resumed() -> bool:
        asked = {"queues": [{"queue": queue}], "wait": 1}
        found.extend(server.post("/v1/claim", asked).json["messages"])
        return bool(found)

    until(is_resumed)
    assert found[0]["has_steps"]
    asked = {"token": found[0]["token"], "include": ["steps", "signals"]}
    run = server.post("/v1/run", asked).json
    assert [each["name"] for each in run["steps"]] == ["charge"]
    assert [(each["name"], each["body"]) for each in run["signals"]] == [("go", 1)]


@pytest.mark.parametrize(
    ("hold", "words"),
    [
        ({"kind": "moment"}, "needs delay or due_at"),
        ({"kind": "signal", "name": "no good"}, "signal name"),
        ({"kind": "after"}, "required for kind 'after'"),
        ({"kind": "after", "after": {"children": [0]}}, "not among the 0"),
        ({"kind": "after", "after": {"ids": ["1"]}}, "is not a child"),
        ({"kind": "after", "after": {"ids": ["1"], "need": 2, "policy": "any"}}, "must not exceed"),
    ],
)
def test_a_hold_that_could_never_end_is_refused(
    server: Served, hold: dict[str, Any], words: str
) -> None:
    queue = server.queue()
    id = server.publish(queue)
    token = claim(server, queue)["token"]
    refused = server.post("/v1/wait", {"token": token, "holds": [hold]})
    assert (refused.status, refused.code) == (422, "INVALID_INPUT")
    assert words in refused.json["error"]["message"]
    assert server.get(f"/v1/messages/{id}").json["state"] == State.CLAIMED


def wait_for_child(server: Served, queue: str, child_queue: str) -> tuple[str, str]:
    id = server.publish(queue)
    sent = {
        "token": claim(server, queue)["token"],
        "holds": [{"kind": "after", "after": {"children": [0]}}],
        "children": [{"queue": child_queue, "delay": 60}],
        "children_step": {"name": "gather", "kind": "gather", "position": 1, "done": False},
    }
    assert server.post("/v1/wait", sent).status == 200
    (step,) = server.get(f"/v1/messages/{id}/steps").json["steps"]
    return id, str(step["result"][0])


def test_a_tree_is_cancelled_over_http_and_by_the_client(server: Served) -> None:
    queue = server.queue()
    top, child = wait_for_child(server, queue, queue)
    done = server.post(f"/v1/messages/{top}/cancel", {"tree": True})
    assert done.json == {
        "id": top, "state": "cancelled", "cancel_requested": False, "children": 1
    }  # fmt: skip
    assert server.message(child)["state"] == "cancelled"
    again = server.post(f"/v1/messages/{top}/cancel", {"tree": True})
    assert (again.status, again.code) == (409, "INVALID_STATE")


async def test_the_client_cancels_a_tree(server: Served) -> None:
    queue = server.queue()
    top, child = wait_for_child(server, queue, queue)
    async with Client(f"http://127.0.0.1:{server.port}") as client:
        done = await client.admin.cancel_tree(int(top))
        assert done == CancelledTree(State.CANCELLED, False, 1)
    assert server.message(child)["state"] == "cancelled"


def test_a_child_with_the_ordering_key_of_its_parent_is_refused(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue, ordering_key="k")
    sent = {
        "token": claim(server, queue)["token"],
        "holds": [{"kind": "after", "after": {"children": [0]}}],
        "children": [{"queue": queue, "ordering_key": "k"}],
    }
    refused = server.post("/v1/wait", sent)
    assert (refused.status, refused.code) == (422, "WAITS_FOR_ITSELF")
    assert server.get(f"/v1/messages/{id}").json["state"] == State.CLAIMED
    sent["children"] = [{"queue": queue, "ordering_key": "other"}]
    assert server.post("/v1/wait", sent).status == 200


@pytest.mark.parametrize("route", ["step", "wait"])
def test_a_result_of_more_than_1_mb_is_refused(server: Served, route: str) -> None:
    queue = server.queue()
    server.publish(queue)
    step = {"name": "charge", "position": 1, "result": "x" * 1_000_000}
    sent: dict[str, Any] = {"token": claim(server, queue)["token"]}
    if route == "step":
        sent["step"] = step
    else:
        sent |= {"steps": [step], "holds": [{"kind": "moment", "delay": 60}]}
    refused = server.post(f"/v1/{route}", sent)
    assert (refused.status, refused.code) == (422, "STEP_TOO_LARGE")
