"""How the service says it is doing; schedules; and OpenAPI."""

from pathlib import Path

import pytest

from penstock.http.events.hub import KINDS
from penstock.http.metrics.autoscale import QueueRate, compute_workers_needed
from tests.cli.terminal import until
from tests.http.served import Served, served


def test_health_readiness_and_version_are_told(server: Served, store: str) -> None:
    assert server.get("/healthz").json == {"status": "ok"}
    assert server.get("/readyz").json == {"status": "ok"}
    told = server.get("/version").json
    assert (told["api"], told["durability"]) == ("v1", "safe")
    assert told["engine"] == store.partition(":")[0].replace("postgresql", "postgres")


def test_a_schedule_is_saved_listed_and_removed(server: Served) -> None:
    queue = server.queue()
    path = f"/v1/queues/{queue}/schedules/nightly"
    sent = {"cron": "0 3 * * *", "timezone": "Europe/Rome", "message": {"type": "t", "body": 1}}
    saved = server.ask("PUT", path, sent)
    assert saved.status == 200, saved
    assert (saved.json["cron"], saved.json["message"]["body"]) == ("0 3 * * *", 1)
    assert saved.json["next_at"].endswith("Z")
    changed = server.ask("PUT", path, {**sent, "paused": True}).json
    assert changed["paused"] is True
    listed = server.get("/v1/schedules").json["schedules"]
    assert [each for each in listed if each["queue"] == queue] == [changed]
    assert server.ask("DELETE", path).status == 204
    assert server.ask("DELETE", path).code == "NOT_FOUND"


@pytest.mark.parametrize("cron", ["* * 31 2 *", "*/0 * * * *", "x", "* " * 90])
def test_a_schedule_that_never_ticks_is_refused(server: Served, cron: str) -> None:
    path = f"/v1/queues/{server.queue()}/schedules/never"
    assert server.ask("PUT", path, {"cron": cron}).status == 422
    assert server.ask("PUT", path, {"cron": "* * * * *"}).status == 200
    server.ask("DELETE", path)


def test_a_schedule_of_a_shell_job_is_refused(server: Served) -> None:
    path = f"/v1/queues/{server.queue()}/schedules/shell"
    sent = {"cron": "* * * * *", "message": {"type": "penstock.shell"}}
    assert server.ask("PUT", path, sent).code == "FORBIDDEN"


def test_a_schedule_fires(server: Served) -> None:
    queue = server.queue()
    path = f"/v1/queues/{queue}/schedules/second"
    server.ask("PUT", path, {"cron": "* * * * * *", "message": {"body": "tick"}})
    assert server.claim_one(queue)["body"] == "tick"
    server.ask("DELETE", path)


def test_the_agents_run_and_say_when(server: Served) -> None:
    def runs() -> dict[str, int]:
        return {
            each["name"]: each["runs"] for each in server.get("/v1/system-agents").json["agents"]
        }

    first = runs()
    assert {"visibility_timeout_enforcer", "scheduler", "expiry_enforcer", "message_archiver",
            "priority_aging_worker", "dead_letter_monitor"} <= set(first)  # fmt: skip
    until(lambda: runs()["scheduler"] > first["scheduler"])


def test_stats_count_by_queue_and_place(server: Served) -> None:
    queue = server.queue()
    for _ in range(3):
        server.publish(queue)
    server.publish(queue, delay=60)
    server.claim_one(queue)

    def counts() -> dict[str, int]:
        listed = server.get("/v1/stats").json["queues"]
        (found,) = [each for each in listed if each["queue"] == queue] or [{}]
        return {name: found.get(name, 0) for name in ("ready", "scheduled", "claimed")}

    until(lambda: counts() == {"ready": 2, "scheduled": 1, "claimed": 1})
    told = server.get("/v1/stats").json
    assert (told["ended_counted"], told.get("truncated", False)) == (10_000, False)


def test_stats_total_the_messages_of_queues_on_other_pages_too(server: Served) -> None:
    for queue in (server.queue(), server.queue()):
        server.publish(queue)

    def counts() -> tuple[int, int]:
        told = server.get("/v1/stats").json
        return sum(each.get("ready", 0) for each in told["queues"]), told["totals"]["ready"]

    until(lambda: counts()[0] >= 2 and counts()[0] == counts()[1])
    page = server.get("/v1/stats", limit=1).json
    assert len(page["queues"]) == 1
    assert page["totals"]["ready"] >= 2


def test_metrics_are_told_with_bounded_labels(own_server: Served) -> None:
    # Others may have served more queues than have labels.
    server = own_server
    queue = server.queue()
    server.publish(queue)
    server.post("/v1/complete", {"token": server.claim_one(queue)["token"]})
    server.get("/v1/messages/77777")
    server.get("/surprise/77777")
    text = server.get("/metrics").body.decode()
    assert f'penstock_published_total{{queue="{queue}"}} 1.0' in text
    assert f'penstock_claimed_total{{queue="{queue}"}} 1.0' in text
    assert 'penstock_settled_total{outcome="done",verb="complete"}' in text
    assert 'route="/v1/publish",status="201"' in text
    series = [line.rpartition(" ")[0] for line in text.splitlines()]
    assert not [one for one in series if "77777" in one]
    assert f'penstock_queue_depth{{queue="{queue}",state="ready"}}' in until(
        lambda: scrape(server, queue)
    )


def scrape(server: Served, queue: str) -> str:
    server.get("/v1/stats")
    text = server.get("/metrics").body.decode()
    server.publish(queue)
    return text if f'queue="{queue}",state="ready"' in text else ""


def test_queues_past_a_limit_share_one_label(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path}/many.db", tmp_path) as server:
        for _ in range(205):
            server.publish(server.queue())
        text = server.get("/metrics").body.decode()
    labels = [line for line in text.splitlines() if line.startswith("penstock_published_total")]
    assert len(labels) == 201
    assert 'penstock_published_total{queue="other"} 5.0' in text


def test_the_needed_workers_are_told(server: Served) -> None:
    queue = server.queue()
    for _ in range(3):
        server.publish(queue)

    def need() -> dict[str, object]:
        listed = server.get("/v1/autoscale", concurrency=1).json["queues"]
        (found,) = [each for each in listed if each["queue"] == queue]
        return found if found["ready"] == 3 else {}

    assert until(need)["workers"] == 1


@pytest.mark.parametrize(
    ("pace", "ready", "needed"),
    [
        (QueueRate(0, 1.0), 0, 0),
        (QueueRate(0, 1.0), 1, 1),
        (QueueRate(100, 0.5), 0, 5),
        (QueueRate(100, 0.5), 1_200, 6),
        (QueueRate(0, 60.0), 100, 10),
    ],
)
def test_needed_workers_keep_pace_and_work_off_what_is_ready(
    pace: QueueRate, ready: int, needed: int
) -> None:
    assert compute_workers_needed(pace, ready, concurrency=10, catch_up=60) == needed


def test_openapi_shows_every_route_with_an_example_of_what_it_takes(server: Served) -> None:
    told = server.get("/openapi.json").json
    for path, operations in told["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            assert "default" in operation["responses"], (method, path)
            for body in operation.get("requestBody", {}).get("content", {}).values():
                assert "example" in body or "schema" in body, (method, path)
    assert {"/v1/publish", "/v1/claim", "/v1/extend/batch", "/v1/messages/{reference}"} <= set(
        told["paths"]
    )


def test_the_kinds_of_events_are_listed_once() -> None:
    assert len(KINDS) == len(set(KINDS))


def test_a_worker_reports_the_scope_of_its_queues(server: Served) -> None:
    sent = {"host": "elsewhere", "pid": 1, "queues": ["default"]}
    try:
        server.put("/v1/workers/old", sent)
        server.put("/v1/workers/new", {**sent, "scope": "billing"})
        workers = server.get("/v1/workers").json["workers"]
        assert {each["id"]: each["scope"] for each in workers} == {
            "old": "default", "new": "billing",
        }  # fmt: skip
    finally:
        server.ask("DELETE", "/v1/workers/old")
        server.ask("DELETE", "/v1/workers/new")


def test_no_worker_is_on_the_list_that_is_not_there(server: Served) -> None:
    assert server.get("/v1/workers").json["workers"] == []
    assert server.post("/v1/workers/nobody/stop").code == "NOT_FOUND"
