"""Requests on the wire: trailers, heads that are too long, and what is not HTTP at all."""

import json
import socket

import pytest

from tests.cli.terminal import until
from tests.http.served import Served, dial, heard, raw
from tests.http.test_parking import wait_for, waiting

CHUNKED = b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n%s\r\n"
CLOSE = b"Connection: close\r\n"
HOT, COLD = b"/v1/publish", b"/v1/queues"


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


def body_of(path: bytes, name: str) -> bytes:
    return json.dumps({"queue": name} if path == HOT else {"name": f"new-{name}"}).encode()


def code_of(answer: bytes) -> str:
    code: str = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"]
    return code


@pytest.mark.parametrize("path", [HOT, COLD])
def test_a_trailer_is_refused_and_the_same_request_without_it_served(
    server: Served, path: bytes
) -> None:
    begun = CHUNKED % (path, CLOSE) + chunk(body_of(path, server.queue())) + b"0\r\n"
    refused = raw(server, begun + b"Authorization: Bearer x\r\n\r\n")
    assert refused.startswith(b"HTTP/1.1 400 ")
    assert code_of(refused) == "MALFORMED"
    assert b"trailers are not supported" in refused
    assert raw(server, begun + b"\r\n").startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize(
    "begun",
    [
        CHUNKED % (b"/healthz", b"") + b"0\r\nX: ",
        CHUNKED % (HOT, b"") + b"0\r\nX: ",
        CHUNKED % (COLD, b"") + chunk(b"{") + b"0\r\nX: ",
        CHUNKED % (HOT, b"") + b"1;extension=",
    ],
    ids=["trailer, answered early", "trailer, hot", "trailer, cold", "chunk extension"],
)
def test_a_line_without_end_is_cut_off(server: Served, begun: bytes) -> None:
    """Whatever is answered, the client cannot go on for ever."""
    sent = 0
    with dial(server) as connection:
        connection.sendall(begun)
        try:
            while sent < 100_000_000:
                connection.sendall(b"a" * 65_536)
                sent += 65_536
        except (ConnectionResetError, BrokenPipeError):
            pass
    assert sent < 100_000_000


def test_a_trailer_line_that_is_too_long_is_answered(server: Served) -> None:
    begun = CHUNKED % (HOT, b"") + chunk(b"{") + b"0\r\nX: "
    answer = raw(server, begun + b"a" * 140_000)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert code_of(answer) == "MALFORMED"


@pytest.mark.parametrize(("size", "status"), [(60_000, b"200"), (70_000, b"400")])
def test_a_head_has_a_limit_even_in_one_write(server: Served, size: int, status: bytes) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: %s\r\n\r\n"
    assert raw(server, head % (b"x" * size)).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("path", [HOT, COLD])
def test_an_answer_to_half_a_request_ends_the_connection(server: Served, path: bytes) -> None:
    head = b"PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    early = raw(server, head % (path, 1_000_000) + b"x" * 500_000)
    assert early.startswith(b"HTTP/1.1 405 ")
    assert early.count(b"\r\nconnection: close\r\n") == 1
    whole = raw(server, (head % (path, 2) + b"{}") * 2 + b"GET /healthz HTTP/1.0\r\n\r\n")
    assert whole.count(b"HTTP/1.1 405 ") == 2
    assert whole.count(b"connection: close") == 1


def test_a_client_that_sends_too_much_reads_the_refusal(small_server: Served) -> None:
    """It sends everything before it reads, as many do."""
    head = b"POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n"
    answer = raw(small_server, head + b"x" * 8_000_000)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert code_of(answer) == "BODY_TOO_LARGE"


@pytest.mark.parametrize(
    "sent",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
    ],
    ids=["no method", "no host", "two hosts", "no length"],
)
def test_what_is_not_http_is_refused_in_the_same_shape(server: Served, sent: bytes) -> None:
    head, _, body = raw(server, sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in head
    error = json.loads(body)["error"]
    assert (error["code"], error["details"]) == ("MALFORMED", [])
    assert b"x-request-id: " + error["request_id"].encode() in head


def test_http_1_0_needs_no_host(server: Served) -> None:
    assert raw(server, b"GET /healthz HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_a_bad_request_does_not_take_the_answer_of_the_one_before_it(server: Served) -> None:
    body = json.dumps({"queue": server.queue()}).encode()
    good = b"POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
    answer = raw(server, good % (len(body), body) + b"GARBAGE\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 201 ")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_a_balancer_may_ask_by_head(server: Served, path: str) -> None:
    head = raw(server, f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n".encode() + CLOSE + b"\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert head.endswith(b"\r\n\r\n")
    assert server.ask("HEAD", "/v1/queues").status == 405


def claim_of(queue: str) -> bytes:
    body = json.dumps({"queues": [{"queue": queue}], "wait": 30}).encode()
    head = b"POST /v1/claim HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def test_a_client_that_leaves_with_a_request_behind_its_claim_keeps_no_lease(
    server: Served,
) -> None:
    queue, before = server.queue(), int(waiting(server))
    with dial(server) as gone:
        gone.sendall(claim_of(queue))
        wait_for(server, before + 1)
        gone.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    id = server.publish(queue)
    message = server.claim_one(queue)
    assert (message["id"], message["deliveries"]) == (id, 1)


def test_requests_behind_a_claim_are_answered_in_turn(server: Served) -> None:
    queue, before = server.queue(), int(waiting(server))
    last = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + CLOSE + b"\r\n"
    with dial(server) as connection:
        connection.sendall(claim_of(queue) + last)
        wait_for(server, before + 1)
        id = server.publish(queue)
        claimed, health = heard(connection).split(b"HTTP/1.1 200 ")[1:]
    assert f'"id":"{id}"'.encode() in claimed
    assert health.endswith(b'{"status":"ok"}')


def test_a_client_that_closes_its_side_is_answered_and_gets_no_message(server: Served) -> None:
    queue, before = server.queue(), int(waiting(server))
    with dial(server) as connection:
        connection.sendall(claim_of(queue))
        wait_for(server, before + 1)
        connection.shutdown(socket.SHUT_WR)
        answer = heard(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["messages"] == []
    id = server.publish(queue)
    assert server.claim_one(queue)["id"] == id


def test_what_is_asked_before_a_client_closes_its_side_is_done(server: Served) -> None:
    queue = server.queue()
    body = json.dumps({"queue": queue}).encode()
    request = b"POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
    with dial(server) as connection:
        connection.sendall(request % (len(body), body) * 3)
        connection.shutdown(socket.SHUT_WR)
        assert heard(connection).count(b"HTTP/1.1 201 ") == 3
    until(lambda: len(server.get("/v1/messages", queue=queue).json["messages"]) == 3)
