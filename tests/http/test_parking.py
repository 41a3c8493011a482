"""Claims that wait: woken in order, given back when nobody is there, answered at the end."""

import json
import socket
from pathlib import Path

import pytest

from tests.cli.terminal import until
from tests.http.served import Later, Served, served


def waiting(server: Served) -> float:
    for line in server.get("/metrics").body.decode().splitlines():
        if line.startswith("penstock_waiting_claims "):
            return float(line.split()[1])
    raise AssertionError("no such gauge")


def wait_for(server: Served, count: int) -> None:
    until(lambda: waiting(server) == count)


def test_a_waiting_claim_is_answered_when_a_message_comes(server: Served) -> None:
    queue, before = server.queue(), waiting(server)
    claim = Later(server.claim, queue, wait=30)
    wait_for(server, int(before) + 1)
    id = server.publish(queue)
    assert [message["id"] for message in claim.result()] == [id]


def test_a_claim_that_waits_in_vain_is_empty(server: Served) -> None:
    assert server.claim(server.queue(), wait=0.2) == []


def test_those_who_wait_are_served_in_the_order_they_came(own_server: Served) -> None:
    queue = own_server.queue()
    claims = []
    for number in range(20):
        claims.append(Later(own_server.claim, queue, wait=30, consumer=f"c{number % 3}"))
        wait_for(own_server, number + 1)
    ids = [own_server.publish(queue) for _ in range(20)]
    assert [claim.result()[0]["id"] for claim in claims] == ids
    consumers = [own_server.message(id)["consumer"] for id in ids]
    assert consumers == [f"c{number % 3}" for number in range(20)]


def test_one_message_is_for_one_of_many_who_wait(own_server: Served) -> None:
    queue = own_server.queue()
    claims = [Later(own_server.claim, queue, wait=2) for _ in range(10)]
    wait_for(own_server, 10)
    own_server.publish(queue)
    assert sorted(len(claim.result()) for claim in claims) == [0] * 9 + [1]


def test_a_message_published_on_another_server_wakes_those_who_wait(
    server: Served, store: str, folder: Path
) -> None:
    queue, before = server.queue(), waiting(server)
    with served(store, folder) as other:
        claim = Later(server.claim, queue, wait=30)
        wait_for(server, int(before) + 1)
        id = other.publish(queue)
        assert [message["id"] for message in claim.result()] == [id]


def test_a_type_that_nobody_waits_for_wakes_nobody(server: Served) -> None:
    queue = server.queue()
    asked = {"queues": [{"queue": queue, "types": ["a"]}], "wait": 30}
    claim = Later(server.post, "/v1/claim", asked)
    server.publish(queue, type="b")
    id = server.publish(queue, type="a")
    assert [message["id"] for message in claim.result().json["messages"]] == [id]


def ask_and_leave(server: Served, queue: str, waiting_then: int) -> None:
    """A claim by somebody who goes away while it waits."""
    body = json.dumps({"queues": [{"queue": queue}], "wait": 30}).encode()
    with socket.create_connection(("127.0.0.1", server.port), 30) as gone:
        gone.sendall(
            b"POST /v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        wait_for(server, waiting_then)


def test_whoever_went_away_keeps_no_lease(server: Served) -> None:
    queue = server.queue()
    ask_and_leave(server, queue, int(waiting(server)) + 1)
    id = server.publish(queue)
    message = server.claim_one(queue)
    assert (message["id"], message["deliveries"]) == (id, 1)


def test_whoever_went_away_leaves_the_line_before_its_wait_is_over(own_server: Served) -> None:
    queue = own_server.queue()
    living = Later(own_server.claim, queue, wait=30)
    wait_for(own_server, 1)
    ask_and_leave(own_server, queue, 2)
    wait_for(own_server, 1)
    assert not living.over
    own_server.publish(queue)
    assert len(living.result()) == 1


def test_a_resumed_queue_serves_those_who_wait(server: Served) -> None:
    queue, before = server.queue(), waiting(server)
    id = server.publish(queue)
    server.post(f"/v1/queues/{queue}/pause")
    claim = Later(server.claim, queue, wait=30)
    wait_for(server, int(before) + 1)
    server.post(f"/v1/queues/{queue}/resume")
    assert [message["id"] for message in claim.result()] == [id]


def test_a_stop_answers_those_who_wait_and_ends_the_process(tmp_path: Path) -> None:
    """Within the grace time, which is shorter than they wait."""
    with served(f"sqlite:///{tmp_path}/q.db", tmp_path, "--grace", 5) as server:
        queue = server.queue()
        claims = [Later(server.claim, queue, wait=30) for _ in range(5)]
        wait_for(server, 5)
        assert server.stop() == 0
        assert [claim.result() for claim in claims] == [[]] * 5
        assert "server stopped" in server.log.read_text()


def test_a_scheduled_message_wakes_those_who_wait_when_it_is_due(server: Served) -> None:
    queue = server.queue()
    claim = Later(server.claim, queue, wait=30)
    id = server.publish(queue, delay=0.3)
    assert [message["id"] for message in claim.result()] == [id]


@pytest.mark.parametrize("wait", [-1, "long", 1e400])
def test_a_wait_that_is_none_is_refused(server: Served, wait: object) -> None:
    body = json.dumps({"queues": [{"queue": "default"}], "wait": wait}).encode()
    assert server.ask("POST", "/v1/claim", body).status in (400, 422)
