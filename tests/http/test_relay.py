"""What users of Relay expect, by real servers: its cases of the acceptance list."""

from contextlib import closing

import pytest

from tests.cli.terminal import until
from tests.http.served import Later, Served, Stream


@pytest.fixture
def queue(server: Served) -> str:
    return server.queue("relay")


def test_9_is_first_and_in_turn_inside(server: Served, queue: str) -> None:
    ids = {priority: [server.publish(queue, priority=priority) for _ in range(2)]
           for priority in range(10)}  # fmt: skip
    found = [message["id"] for message in server.claim(queue, limit=20)]
    assert found == [id for priority in range(9, -1, -1) for id in ids[priority]]


def test_priority_10_is_a_422(server: Served, queue: str) -> None:
    assert server.post("/v1/publish", {"queue": queue, "priority": 10}).status == 422


def test_a_type_filter_leaves_the_others_alone(server: Served, queue: str) -> None:
    other, wanted = server.publish(queue, type="a"), server.publish(queue, type="b")
    asked = {"queues": [{"queue": queue, "types": ["b"]}], "limit": 5}
    found = server.post("/v1/claim", asked).json["messages"]
    assert [message["id"] for message in found] == [wanted]
    assert (server.state(other), server.message(other)["deliveries"]) == ("ready", 0)


def test_an_empty_queue_answers_after_the_wait_and_an_enqueue_before(
    server: Served, queue: str
) -> None:
    assert server.claim(queue, wait=0.3) == []
    claim = Later(server.claim, queue, wait=30)
    id = server.publish(queue)
    assert claim.result()[0]["id"] == id


def test_five_of_three_are_three_with_three_tokens(server: Served, queue: str) -> None:
    for _ in range(3):
        server.publish(queue)
    found = server.claim(queue, limit=5)
    assert len({message["token"] for message in found}) == 3


def test_whoever_timed_out_is_told_409_and_the_holder_acks(server: Served, queue: str) -> None:
    id = server.publish(queue)
    first = server.claim_one(queue, lease=0.1, consumer="a")
    second = server.claim_one(queue, consumer="b")
    late = server.post("/v1/complete", {"token": first["token"]})
    assert (late.status, late.code) == (409, "LOCK_LOST")
    assert server.post("/v1/complete", {"token": second["token"]}).status == 200
    consumers = [(step["verb"], step["consumer"]) for step in server.message(id)["timeline"]]
    assert consumers == [("reclaim", "a"), ("complete", "b")]


def test_a_touch_moves_the_lock_and_not_a_lost_one(server: Served, queue: str) -> None:
    id = server.publish(queue)
    message = server.claim_one(queue, lease=5)
    touched = server.post("/v1/extend", {"token": message["token"], "lease": 30}).json
    assert server.message(id)["lease_until"] == touched["lease_until"] > message["lease_until"]
    server.post("/v1/release", {"token": message["token"]})
    gone = server.post("/v1/extend", {"token": message["token"], "lease": 30})
    assert (gone.status, gone.code) in ((409, "LOCK_LOST"), (409, "INVALID_STATE"))


def test_three_nacks_are_queued_queued_dead(server: Served, queue: str) -> None:
    server.publish(queue)
    states = [
        server.post("/v1/nack", {"token": server.claim_one(queue)["token"]}).json["state"]
        for _ in range(3)
    ]
    assert states == ["ready", "ready", "dead"]


def test_an_expired_lock_is_queued_again_and_at_the_limit_dead(server: Served, queue: str) -> None:
    id = server.publish(queue, {"kept": True})
    for _ in range(2):
        server.claim_one(queue, lease=0.1)
    message = server.claim_one(queue, lease=0.1)
    assert (message["body"], message["deliveries"]) == ({"kept": True}, 3)
    until(lambda: server.state(id) == "dead")
    assert "lease_until" not in server.message(id)


def test_a_listener_hears_of_enqueue_dequeue_and_ack_without_bodies(
    server: Served, queue: str
) -> None:
    with closing(Stream(server, queue=queue)) as stream:
        id = server.publish(queue, {"secret": "s3cret"})
        server.post("/v1/complete", {"token": server.claim_one(queue)["token"]})
        seen = stream.until("message.completed", id)
    kinds = [event["kind"] for event in seen]
    assert kinds == ["message.published", "message.claimed", "message.completed"]
    assert "s3cret" not in str(seen)


def test_an_ack_of_many_says_what_succeeded_and_what_failed(server: Served, queue: str) -> None:
    for _ in range(2):
        server.publish(queue)
    good, old = server.claim(queue, limit=2)
    server.post("/v1/nack", {"token": old["token"]})
    server.claim_one(queue)
    items = [{"token": token} for token in (good["token"], old["token"], "5.5.made-up")]
    reply = server.post("/v1/complete/batch", {"items": items}).json
    codes = [item.get("error", {}).get("code") for item in reply["items"]]
    assert codes == [None, "LOCK_LOST", "INVALID_TOKEN"]


def test_a_nack_of_many_says_what_was_requeued_and_what_is_dead(server: Served, queue: str) -> None:
    tired = server.publish(queue)
    for _ in range(2):
        server.post("/v1/nack", {"token": server.claim_one(queue)["token"]})
    fresh = server.publish(queue)
    items = [{"token": each["token"]} for each in server.claim(queue, limit=2)]
    reply = server.post("/v1/nack/batch", {"items": items}).json
    assert {item["id"]: item["state"] for item in reply["items"]} == {tired: "dead", fresh: "ready"}


def test_a_message_s_life_is_told_in_order_with_times_and_consumers(
    server: Served, queue: str
) -> None:
    id = server.publish(queue)
    server.post("/v1/nack", {"token": server.claim_one(queue, consumer="a")["token"]})
    server.post("/v1/complete", {"token": server.claim_one(queue, consumer="b")["token"]})
    told = server.message(id)
    steps = told["timeline"]
    assert [(s["verb"], s["consumer"]) for s in steps] == [("nack", "a"), ("complete", "b")]
    moments = [told["created_at"], *(step["at"] for step in steps)]
    assert moments == sorted(moments)


def test_a_dead_message_moved_to_main_is_claimable_with_its_edited_payload(
    server: Served, queue: str
) -> None:
    id = server.publish(queue, "old")
    server.post("/v1/reject", {"token": server.claim_one(queue)["token"]})
    server.post(f"/v1/messages/{id}/redrive", {"body": "new"})
    assert server.claim_one(queue)["body"] == "new"


def test_a_queue_that_is_not_empty_is_not_deleted(server: Served, queue: str) -> None:
    server.publish(queue)
    assert server.ask("DELETE", f"/v1/queues/{queue}").status == 409
    assert server.ask("DELETE", f"/v1/queues/{queue}", force="true").status == 204


def test_a_rename_onto_an_existing_name_is_a_409(server: Served, queue: str) -> None:
    other = server.queue()
    assert server.post(f"/v1/queues/{queue}/rename", {"name": other}).status == 409


def test_an_export_imported_into_an_empty_queue_is_the_same_set_of_bodies(
    server: Served, queue: str
) -> None:
    bodies = [{"number": number} for number in range(10)]
    for body in bodies:
        server.publish(queue, body)
    copy = server.queue("relay")
    exported = server.get(f"/v1/queues/{queue}/export").body
    server.ask("POST", f"/v1/queues/{copy}/import", exported)
    found = [message["body"] for message in server.claim(copy, limit=20)]
    assert sorted(found, key=str) == sorted(bodies, key=str)


def test_health_is_open(server: Served) -> None:
    assert server.get("/healthz").status == 200
