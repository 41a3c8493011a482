"""What users of codeQ expect, by real servers: its cases of the acceptance list."""

from datetime import datetime
from time import monotonic

import pytest

from tests.http.served import WAIT_LIMIT_S, Later, Served


@pytest.fixture
def queue(server: Served) -> str:
    return server.queue("codeq")


def seconds_until(text: str, base: str) -> float:
    return (datetime.fromisoformat(text) - datetime.fromisoformat(base)).total_seconds()


def test_a_producer_gets_201_and_the_task_is_ready(server: Served, queue: str) -> None:
    reply = server.post("/v1/publish", {"queue": queue, "type": "resize", "body": {}})
    assert (reply.status, server.state(reply.json["id"])) == (201, "ready")


def test_a_task_without_a_command_is_refused(server: Served, queue: str) -> None:
    assert server.post("/v1/publish", {"queue": queue, "type": ""}).status == 422


def test_a_claim_without_work_is_empty_and_a_waiting_one_gets_what_comes(
    server: Served, queue: str
) -> None:
    assert server.claim(queue) == []
    claim = Later(server.claim, queue, wait=99)
    id = server.publish(queue)
    assert [message["id"] for message in claim.result()] == [id]


def test_9_is_before_2_in_turn_inside_and_42_is_a_9(server: Served, queue: str) -> None:
    low = [server.publish(queue, priority=2) for _ in range(2)]
    high = [server.publish(queue, priority=priority) for priority in (9, 42)]
    found = server.claim(queue, limit=4)
    assert [message["id"] for message in found] == high + low
    assert [message["priority"] for message in found] == [9, 9, 2, 2]


def test_an_expired_lease_is_repaired_without_a_claim_and_waits_for_its_backoff(
    server: Served, queue: str
) -> None:
    id = server.publish(queue)
    server.claim_one(queue, lease=0.1)
    again = server.claim_one(queue)
    assert (again["id"], again["deliveries"]) == (id, 2)
    (step,) = server.message(id)["timeline"]
    assert (step["verb"], step["reason"]) == ("reclaim", "LEASE_EXPIRED")


def test_a_heartbeat_of_the_owner_lengthens_the_lease(server: Served, queue: str) -> None:
    server.publish(queue)
    message = server.claim_one(queue, lease=10)
    longer = server.post("/v1/extend", {"token": message["token"], "lease": 60}).json
    assert longer["lease_until"] > message["lease_until"]


def test_an_abandoned_task_is_claimable_at_once_and_no_attempt_is_used(
    server: Served, queue: str
) -> None:
    id = server.publish(queue)
    server.post("/v1/release", {"token": server.claim_one(queue)["token"]})
    (again,) = server.claim(queue)
    assert (again["id"], again["attempts"], again["deliveries"]) == (id, 0, 1)


def test_a_nack_with_a_delay_of_5000_waits_900(server: Served, queue: str) -> None:
    id = server.publish(queue)
    token = server.claim_one(queue)["token"]
    reply = server.post("/v1/nack", {"token": token, "delay": 5000, "error": "no"})
    assert reply.json["state"] == "scheduled"
    told = server.message(id)
    assert 890 < seconds_until(told["due_at"], told["timeline"][0]["at"]) <= 900


def test_steady_nacks_are_five_runs_and_then_the_dead_letters(server: Served, queue: str) -> None:
    id = server.publish(queue)
    states = []
    for _ in range(5):
        token = server.claim_one(queue)["token"]
        sent = {"token": token, "delay": 0, "error": "no"}
        states.append(server.post("/v1/nack", sent).json["state"])
    assert states == ["ready"] * 4 + ["dead"]
    told = server.message(id)
    assert (told["attempts"], told["reason"]) == (5, "retries_exhausted")
    assert server.claim(queue) == []


def test_a_failure_without_an_error_is_refused_and_the_task_still_runs(
    server: Served, queue: str
) -> None:
    id = server.publish(queue)
    token = server.claim_one(queue)["token"]
    assert server.post("/v1/fail", {"token": token}).status == 422
    assert server.state(id) == "claimed"


def test_a_failed_result_is_final_and_not_in_the_dead_letters(server: Served, queue: str) -> None:
    id = server.publish(queue)
    sent = {"token": server.claim_one(queue)["token"], "error": "broken"}
    assert server.post("/v1/fail", sent).json["state"] == "failed"
    assert (server.state(id), server.claim(queue)) == ("failed", [])
    assert server.get("/v1/messages", queue=queue, state="dead").json["messages"] == []


def test_a_second_result_is_a_409_and_an_unknown_task_a_404(server: Served, queue: str) -> None:
    server.publish(queue)
    sent = {"token": server.claim_one(queue)["token"], "result": 1}
    assert server.post("/v1/complete", sent).status == 200
    assert server.post("/v1/complete", sent).status == 409
    assert server.get("/v1/messages/999999999").status == 404


def test_an_idempotency_key_used_again_is_the_same_task(server: Served, queue: str) -> None:
    sent = {"queue": queue, "body": 1, "dedup": {"key": f"key-{queue}"}}
    first, second = (server.post("/v1/publish", sent).json for _ in range(2))
    assert first["id"] == second["id"]


def test_a_nack_is_answered_with_the_delay_and_the_time_of_the_retry(
    server: Served, queue: str
) -> None:
    id = server.publish(queue)
    sent = {"token": server.claim_one(queue)["token"], "delay": 5000, "error": "no"}
    reply = server.post("/v1/nack", sent).json
    due_at = server.message(id)["due_at"]
    assert reply["delay"] == 900
    assert abs(seconds_until(reply["due_at"], due_at)) < 60
    again = server.publish(queue)
    items = [{"token": server.claim_one(queue)["token"], "delay": 7}]
    (item,) = server.post("/v1/nack/batch", {"items": items}).json["items"]
    assert (item["id"], item["delay"]) == (again, 7)


def test_a_completion_without_a_result_is_refused_and_the_task_still_runs(
    server: Served, queue: str
) -> None:
    id = server.publish(queue)
    token = server.claim_one(queue)["token"]
    reply = server.post("/v1/complete", {"token": token})
    assert (reply.status, reply.code) == (422, "INVALID_INPUT")
    assert "requires a result" in reply.json["error"]["message"]
    done = server.post("/v1/complete/batch", {"items": [{"token": token}]}).json
    assert (done["refused"], server.state(id)) == (1, "claimed")
    assert server.post("/v1/complete", {"token": token, "result": None}).status == 200


def test_an_idempotency_key_with_another_body_is_the_same_task(server: Served, queue: str) -> None:
    sent = {"queue": queue, "dedup": {"key": f"key-{queue}"}}
    first, second = (server.post("/v1/publish", {**sent, "body": n}).json for n in range(2))
    assert (second["id"], second["duplicate"]) == (first["id"], True)
    assert server.message(first["id"])["body"] == 0


def test_finished_tasks_are_pruned_on_demand_up_to_a_limit_and_a_time(
    server: Served, queue: str
) -> None:
    ids = [server.publish(queue) for _ in range(4)]
    for message in server.claim(queue, limit=3):
        server.post("/v1/complete", {"token": message["token"], "result": 1})
    path = f"/v1/queues/{queue}/prune"
    old = server.post(path, {"before": "2020-01-01T00:00:00Z"}).json
    assert old == {"pruned": 0, "more": False}
    # Messages are kept until the metrics have read them.
    counts: list[int] = []
    end = monotonic() + WAIT_LIMIT_S
    while sum(counts) < 3:
        assert monotonic() < end
        counts.append(server.post(path, {"limit": 2}).json["pruned"])
    assert max(counts) <= 2
    assert server.post(path).json == {"pruned": 0, "more": False}
    assert [server.get(f"/v1/messages/{id}").status for id in ids] == [410, 410, 410, 200]
    assert server.post(path, {"limit": 0}).status == 422


def test_a_failed_task_keeps_its_artifacts(server: Served, queue: str) -> None:
    id = server.publish(queue)
    file = {"name": "log.txt", "content": "bG9n"}
    sent = {"token": server.claim_one(queue)["token"], "error": "broken", "artifacts": [file]}
    assert server.post("/v1/fail", sent).json["state"] == "failed"
    listed = server.get(f"/v1/messages/{id}/artifacts").json["artifacts"]
    assert listed == [{"name": "log.txt", "size": 3, "content_type": "text/plain"}]
    assert server.get(f"/v1/messages/{id}/artifacts/log.txt").body == b"log"
