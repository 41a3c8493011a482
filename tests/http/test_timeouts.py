"""Clients that stall are refused, on every route and at every stage of a request."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http.served import Served, dial, heard, raw, served

POST = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
HOT, COLD, IMPORT = b"/v1/publish", b"/v1/queues", b"/v1/queues/default/import"


@pytest.fixture(scope="module")
def hasty(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("hasty")
    words = ("--head-timeout", 0.5, "--body-timeout", 0.5)
    with served(f"sqlite:///{home}/hasty.db", home, *words) as running:
        yield running


def test_a_client_that_sends_nothing_is_cut_off(hasty: Served) -> None:
    assert raw(hasty, b"") == b""


@pytest.mark.parametrize("before", [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_half_a_head_is_refused(hasty: Served, before: bytes) -> None:
    answer = raw(hasty, before + b"GET /healthz HT")
    assert answer.count(b"HTTP/1.1 200 ") == (1 if before else 0)
    last = answer[answer.rindex(b"HTTP/1.1 ") :]
    assert last.startswith(b"HTTP/1.1 408 ")
    assert json.loads(last.partition(b"\r\n\r\n")[2])["error"]["code"] == "REQUEST_TIMEOUT"


@pytest.mark.parametrize("path", [HOT, COLD, IMPORT])
@pytest.mark.parametrize("begun", [b"", b"{"], ids=["nothing", "a byte"])
def test_a_body_that_does_not_come_is_refused(hasty: Served, path: bytes, begun: bytes) -> None:
    answer = raw(hasty, POST % (path, 100) + begun)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "REQUEST_TIMEOUT"


@pytest.mark.parametrize("path", [HOT, COLD, IMPORT])
def test_the_same_requests_are_served_when_they_come_in_time(hasty: Served, path: bytes) -> None:
    name = hasty.queue()
    sent = {HOT: {"queue": name}, COLD: {"name": f"new-{name}"}, IMPORT: {"body": 1}}[path]
    body = json.dumps(sent).encode()
    with dial(hasty) as connection:
        connection.sendall(POST % (path, len(body)))
        connection.sendall(body[:5])
        connection.sendall(body[5:])
        answer = connection.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 20")


def test_a_claim_may_wait_longer_than_a_head_may_take(hasty: Served) -> None:
    assert hasty.claim(hasty.queue(), wait=1.5) == []


@pytest.mark.parametrize("path", [HOT, IMPORT])
def test_a_stop_does_not_wait_for_a_body_that_does_not_come(tmp_path: Path, path: bytes) -> None:
    """The grace time is longer than this test waits."""
    with (
        served(f"sqlite:///{tmp_path}/q.db", tmp_path, "--grace", 600) as server,
        dial(server) as half_a_request,
        dial(server) as half_a_head,
    ):
        half_a_request.sendall(POST % (path, 100))
        half_a_head.sendall(b"GET /healthz HT")
        assert server.get("/healthz").status == 200
        assert server.stop() == 0
        assert heard(half_a_request).startswith(b"HTTP/1.1 408 ")


def test_a_stop_lets_a_request_finish_that_goes_on(own_server: Served) -> None:
    body = json.dumps({"queue": "default"}).encode()
    with dial(own_server) as connection:
        connection.sendall(POST % (HOT, len(body)) + body[:5])
        assert own_server.get("/healthz").status == 200
        own_server.process.terminate()
        wait_until_refused(own_server)
        connection.sendall(body[5:])
        assert heard(connection).startswith(b"HTTP/1.1 201 ")
    assert own_server.process.wait(60) == 0


def wait_until_refused(server: Served) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", server.port), 60).close()
        except ConnectionError:
            return
