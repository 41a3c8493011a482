"""What stands on the wire: quick answers are written at once, and connections end as agreed."""

import json
import socket

import pytest

from tests.http.served import Served, raw

BODY = b'{"queue":"default"}'
CLOSE = b"Connection: close\r\n"


def request(more: bytes = b"", version: bytes = b"1.1", method: bytes = b"POST") -> bytes:
    head = b"%s /v1/publish HTTP/%s\r\nHost: localhost\r\nContent-Length: %d\r\n%s\r\n"
    return head % (method, version, len(BODY), more) + BODY


@pytest.mark.parametrize("sent", [request(CLOSE), request(version=b"1.0")], ids=["asked", "1.0"])
def test_who_asks_for_it_is_answered_and_the_connection_ends(server: Served, sent: bytes) -> None:
    head, _, body = raw(server, sent).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 201 ")
    assert head.lower().count(b"connection: close") == 1
    assert b"x-request-id: " in head
    assert b"date: " in head
    assert json.loads(body)["id"]


def test_requests_in_a_row_are_answered_in_a_row(server: Served) -> None:
    said = raw(server, request() + request(b"X-Request-Id: second\r\n") + request(CLOSE))
    answers = said.split(b"HTTP/1.1 201 ")[1:]
    assert [b"x-request-id: second" in answer for answer in answers] == [False, True, False]
    ids = [int(json.loads(answer.partition(b"\r\n\r\n")[2])["id"]) for answer in answers]
    assert ids == sorted(ids)


def test_to_a_head_there_is_no_body(server: Served) -> None:
    head, _, body = raw(server, request(CLOSE, method=b"HEAD")).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 405 ")
    assert b"allow: POST" in head
    assert body == b""


def test_an_answer_is_one_write(server: Served) -> None:
    """Whoever waits for it is woken once."""
    with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
        for _ in range(20):
            connection.sendall(request())
            head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 201 ")
            assert json.loads(body)["id"]
