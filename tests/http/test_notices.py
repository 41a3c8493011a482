"""Notices of a real server: whoever subscribed is told that there is work."""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.http.receiver import Receiver
from tests.http.served import Reply, Served


def subscribe(server: Served, url: str, queue: str, **more: object) -> Reply:
    sent = {"url": url, "queues": [queue], "min_interval": 1, **more}
    return server.post("/v1/subscriptions", sent)


def subscribed(server: Served, url: str, queue: str, **more: object) -> str:
    reply = subscribe(server, url, queue, **more)
    assert reply.status == 201, reply
    id: str = reply.json["id"]
    return id


def secret_of(server: Served) -> str:
    secret: str = server.get("/v1/callbacks/secret").json["secret"]
    return secret


def list_subscriptions(server: Served) -> dict[str, Any]:
    found = server.get("/v1/subscriptions").json["subscriptions"]
    return {each["id"]: each for each in found}


def test_a_subscriber_is_told_while_there_is_work_and_not_faster_than_it_wishes(
    caller: Served, receiver: Receiver
) -> None:
    queue = caller.queue()
    subscribed(caller, f"{receiver.url}/work/{queue}", queue)
    caller.publish(queue, 1)
    posts = receiver.wait(f"/work/{queue}", 3)
    told = posts[0].verify(secret_of(caller))
    assert (told["type"], told["data"]) == ("work.available", {
        "scope": "default", "queue": queue, "types": [], "depth": 1, "claim_url": "/v1/claim",
        "claim": {"queues": [{"queue": queue, "types": []}]},
    })  # fmt: skip
    # By the store's clock: the way of one may be longer than that of the next.
    times = sorted(datetime.fromisoformat(post.json["timestamp"]) for post in posts)
    assert min(after - before for before, after in pairwise(times)) >= timedelta(seconds=1)
    assert len({post.id for post in posts}) == len(posts)


def test_fanout_tells_all_and_a_group_one_in_turn_and_hash_the_same_one(
    caller: Served, receiver: Receiver
) -> None:
    queue = caller.queue()
    paths: dict[str, list[str]] = {}
    for mode in ("fanout", "group", "hash"):
        more = {"mode": mode, **({"group": "a"} if mode == "group" else {})}
        paths[mode] = [f"/{mode}{number}/{queue}" for number in range(3)]
        for path in paths[mode]:
            subscribed(caller, receiver.url + path, queue, **more)
    caller.publish(queue, 1)
    for path in paths["fanout"]:
        receiver.wait(path, 2)
    for path in paths["group"]:
        receiver.wait(path, 1)
    posts = [post for path in paths["group"] for post in receiver.of(path)]
    posts.sort(key=lambda post: str(post.json["timestamp"]))
    assert sorted(post.path for post in posts[:3]) == paths["group"]
    assert sum(bool(receiver.of(path)) for path in paths["hash"]) == 1


@pytest.mark.parametrize("mode", ["fanout", "group", "hash"])
def test_a_subscriber_is_notified_of_every_queue_that_has_work(
    caller: Served, receiver: Receiver, mode: str
) -> None:
    busy, idle = [caller.queue() for _ in range(3)], caller.queue()
    path = f"/all/{idle}"
    for queue in busy:
        caller.publish(queue, 1)
    more = {"mode": mode, **({"group": "a"} if mode == "group" else {})}
    subscribed(caller, receiver.url + path, idle, **{**more, "queues": [idle, *busy]})
    posts = receiver.wait(path, 6)
    posts.sort(key=lambda post: str(post.json["timestamp"]))
    heard = [post.json["data"]["queue"] for post in posts]
    assert sorted(heard[:3]) == sorted(heard[3:6]) == sorted(busy)


def test_a_queue_without_work_and_another_type_tell_nobody(
    caller: Served, receiver: Receiver
) -> None:
    typed, idle, paused = caller.queue("codeq"), caller.queue(), caller.queue()
    subscribed(caller, f"{receiver.url}/idle/{idle}", idle)
    subscribed(caller, f"{receiver.url}/paused/{paused}", paused)
    subscribed(caller, f"{receiver.url}/a/{typed}", typed, types=["a"])
    subscribed(caller, f"{receiver.url}/b/{typed}", typed, types=["x", "b"])
    caller.post(f"/v1/queues/{paused}/pause")
    caller.publish(paused, 1)
    caller.publish(typed, 1, type="b")
    receiver.wait(f"/b/{typed}", 2)
    assert receiver.of(f"/a/{typed}") == []
    assert receiver.of(f"/idle/{idle}") == []
    assert receiver.of(f"/paused/{paused}") == []


def test_a_subscription_ends_with_its_time_or_on_request(
    caller: Served, receiver: Receiver
) -> None:
    queue = caller.queue()
    id = subscribed(caller, f"{receiver.url}/end/{queue}", queue, ttl=10)
    before = list_subscriptions(caller)[id]["expires_at"]
    beaten = caller.post(f"/v1/subscriptions/{id}/heartbeat")
    assert (beaten.status, beaten.json["id"]) == (200, id)
    assert beaten.json["expires_at"] > before
    assert caller.ask("DELETE", f"/v1/subscriptions/{id}").status == 204
    assert id not in list_subscriptions(caller)
    assert caller.post(f"/v1/subscriptions/{id}/heartbeat").code == "NOT_FOUND"
    assert caller.ask("DELETE", f"/v1/subscriptions/{id}").code == "NOT_FOUND"
    caller.publish(queue, 1)
    other = caller.queue()
    subscribed(caller, f"{receiver.url}/other/{other}", other)
    caller.publish(other, 1)
    receiver.wait(f"/other/{other}", 2)
    assert receiver.of(f"/end/{queue}") == []


def test_a_receiver_that_is_gone_is_forgotten(caller: Served, receiver: Receiver) -> None:
    queue = caller.queue()
    path = f"/gone/{queue}"
    receiver.answers[path] = [410]
    id = subscribed(caller, receiver.url + path, queue, min_interval=60)
    caller.publish(queue, 1)
    receiver.wait(path)
    while id in list_subscriptions(caller):
        pass
    assert len(receiver.of(path)) == 1


BAD: dict[str, dict[str, Any]] = {
    "private": {"url": "http://127.0.0.1/"},
    "metadata": {"url": "http://169.254.169.254/"},
    "port": {"url": "http://example.org:22/"},
    "scheme": {"url": "ftp://example.org/"},
    "user": {"url": "http://a@example.org/"},
    "no queues": {"queues": []},
    "group without a name": {"mode": "group"},
    "name without a group": {"group": "a"},
    "mode": {"mode": "all"},
    "long": {"ttl": 3_601},
    "short": {"ttl": 1},
    "fast": {"min_interval": 0.5},
    "types of a queue that has no index of them": {"types": ["a"]},
    "unknown": {"colour": "red"},
}


@pytest.mark.parametrize("name", BAD)
def test_a_subscription_that_makes_no_sense_is_refused(server: Served, name: str) -> None:
    good = {"url": "https://example.org/wake", "queues": ["default"]}
    assert server.post("/v1/subscriptions", {**good, **BAD[name]}).code == "INVALID_INPUT"


def test_a_queue_that_is_not_there_or_the_systems_is_refused(server: Served) -> None:
    url = "https://example.org/wake"
    assert subscribe(server, url, "nowhere").code == "NOT_FOUND"
    assert subscribe(server, url, "_callback").code == "FORBIDDEN"
    assert subscribe(server, url, "_dead_letter").code == "FORBIDDEN"
