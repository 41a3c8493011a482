"""Metrics, anomalies and alerts of a real server."""

from contextlib import closing
from typing import Any

import pytest

from penstock.broker.anomalies import AnomalyQuery
from penstock.client import Client
from tests.http.receiver import Receiver
from tests.http.served import Served, Stream
from tests.http.test_callbacks import secret_of, until


def reject(server: Served, queue: str) -> str:
    id = server.publish(queue, {"secret": "body"})
    token = server.claim_one(queue)["token"]
    assert server.post("/v1/reject", {"token": token, "error": "secret error"}).status == 200
    return id


def find_anomalies(server: Served, queue: str) -> list[Any]:
    reply = server.get(f"/v1/anomalies?queue={queue}")
    assert reply.status == 200, reply
    found: list[Any] = reply.json["anomalies"]
    return found


def count_looks(server: Served) -> int:
    agents = server.get("/v1/system-agents").json["agents"]
    (runs,) = [each["runs"] for each in agents if each["name"] == "anomaly_watcher"]
    return int(runs)


def test_a_queue_has_metrics_consumers_and_anomalies(caller: Served) -> None:
    queue = caller.queue()
    id = reject(caller, queue)
    (found,) = until(lambda: find_anomalies(caller, queue))
    assert (found["kind"], found["state"], found["severity"], found["message_id"]) == (
        "dlq_movement", "open", "critical", id,
    )  # fmt: skip
    assert "secret" not in str(found)
    measured = caller.get(f"/v1/metrics/queues/{queue}").json
    assert sum(point.get("dead", 0) for point in measured["points"]) == 1
    assert measured["live"]["dead"] == 1
    stats = caller.get(f"/v1/metrics/consumers?queue={queue}").json["consumers"]
    assert [(each["attempts"], each["failures"]) for each in stats] == [(1, 1)]


@pytest.mark.anyio
async def test_the_client_reads_the_same(caller: Served) -> None:
    queue = caller.queue()
    reject(caller, queue)
    until(lambda: find_anomalies(caller, queue))
    async with Client(f"http://127.0.0.1:{caller.port}") as client:
        measured = await client.metrics.queue(queue)
        assert sum(point.dead for point in measured.points) == 1
        (stats,) = (await client.metrics.consumers(queue=queue)).consumers
        assert stats.failures == 1
        query = AnomalyQuery(queues=(queue,), kinds=("dlq_movement",))
        report = await client.anomalies.list(query)
        assert [each.kind for each in report.anomalies] == ["dlq_movement"]
        await client.alerts.add(f"a-{queue}", "https://example.org/", queues=(queue,))
        status = await client.alerts.get(f"a-{queue}")
        assert (status.alert.queues, status.state.sent) == ((queue,), 0)
        assert f"a-{queue}" in [each.alert.name for each in await client.alerts.list()]
        await client.alerts.delete(f"a-{queue}")


def test_an_alert_is_sent_once_signed_and_without_bodies_or_errors(
    caller: Served, receiver: Receiver
) -> None:
    queue = caller.queue()
    path = f"/alert/{queue}"
    new = {"name": queue, "url": receiver.url + path, "queues": [queue]}
    assert caller.post("/v1/alerts", new).status == 201
    assert caller.post("/v1/alerts", new).status == 409
    id = reject(caller, queue)
    (post,) = receiver.wait(path)
    told = post.verify(secret_of(caller))
    assert told["type"] == "alert.firing"
    assert told["text"].startswith(f"[{queue}] 1 anomaly open\ncritical: dlq_movement {queue}")
    (case,) = told["data"]["anomalies"]
    assert (case["kind"], case["queue"], case["count"], case["message_id"]) == (
        "dlq_movement", queue, 1, id,
    )  # fmt: skip
    assert b"secret" not in post.body
    until(lambda: caller.get(f"/v1/alerts/{queue}").json["sent"] == 1)
    assert caller.post(f"/v1/alerts/{queue}/test").status == 202
    _, test = receiver.wait(path, 2)
    assert test.verify(secret_of(caller))["type"] == "alert.test"
    assert caller.ask("DELETE", f"/v1/alerts/{queue}").status == 204


def test_a_receiver_that_is_down_is_asked_again_and_named(
    caller: Served, receiver: Receiver
) -> None:
    queue = caller.queue()
    path = f"/down/{queue}"
    receiver.answers[path] = [503, 200]
    new = {"name": queue, "url": receiver.url + path, "queues": [queue]}
    assert caller.post("/v1/alerts", new).status == 201
    assert caller.post(f"/v1/alerts/{queue}/test").status == 202
    told = until(lambda: (found := caller.get(f"/v1/alerts/{queue}").json)["error"] and found)
    assert (told["error"], told["attempts"], told["sent"]) == ("status 503", 1, 0)
    first, second = receiver.wait(path, 2)
    assert first.id == second.id
    until(lambda: caller.get(f"/v1/alerts/{queue}").json["sent"] == 1)
    caller.ask("DELETE", f"/v1/alerts/{queue}")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"url": "ftp://example.org"}, "url"),
        ({"kinds": ["nonsense"]}, "unknown anomaly nonsense"),
        ({"cooldown": -1}, "cooldown"),
        ({"severities": ["loud"]}, "loud"),
        ({"name": "a b"}, "name"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_an_alert_that_makes_no_sense_is_refused(
    caller: Served, change: dict[str, Any], reason: str
) -> None:
    reply = caller.post("/v1/alerts", {"name": "x", "url": "https://example.org/", **change})
    assert reply.status in (400, 422), reply
    assert reason in str(reply.json)


def test_listeners_hear_of_anomalies(caller: Served) -> None:
    queue = caller.queue()
    with closing(Stream(caller, queue=queue, kind="anomaly.opened")) as stream:
        # The first look tells nothing, so the anomaly comes after it.
        before = count_looks(caller)
        until(lambda: count_looks(caller) > before + 1)
        reject(caller, queue)
        event = stream.event()
    assert (event["reason"], event["queue"], event["state"]) == ("dlq_movement", queue, "critical")


@pytest.mark.parametrize(
    "path", ["/v1/metrics/queues/default?step=7s", "/v1/metrics/queues/default?since=soon",
             "/v1/anomalies?since=2999-01-01", "/v1/anomalies?knd=x", "/v1/pipeline/nonsense",
             "/v1/metrics/queues/default?step=1m&since=2020-01-01"],
)  # fmt: skip
def test_a_question_that_makes_no_sense_is_refused(caller: Served, path: str) -> None:
    assert caller.get(path).status in (400, 422)


def test_a_server_without_a_lake_says_how_to_get_one(caller: Served) -> None:
    lake = caller.get("/v1/lake").json
    reason = "this server has no lake; start it with --lake"
    assert lake == {"available": False, "reason": reason, "jobs": []}
    for path in ("/v1/lake/run", "/v1/lake/backtest"):
        body = {"rule": {"queue": "mail", "do": [{"set": {"priority": 5}}]}}
        refused = caller.post(path, body if path.endswith("backtest") else None)
        assert (refused.status, refused.code) == (409, "INVALID_STATE")
        assert refused.json["error"]["message"] == reason


def test_results_of_the_pipeline_are_readable(caller: Served) -> None:
    assert caller.get("/v1/pipeline/metrics").json == {"results": {}}
