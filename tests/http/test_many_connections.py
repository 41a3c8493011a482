"""Thousands of idle connections: others are served, and the limit of open files is kept."""

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tests.cli.terminal import until
from tests.http.served import Later, Served, dial, heard, read, served

IDLE = 5_000


@contextmanager
def enough_files(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        pytest.skip(f"{count} open files are not allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_new_clients_are_served_beside_thousands_of_idle_connections(tmp_path: Path) -> None:
    words = ("--head-timeout", 20)
    with (
        enough_files(IDLE + 200),
        served(f"sqlite:///{tmp_path}/q.db", tmp_path, *words) as server,
        ExitStack() as opened,
    ):
        queue = server.queue()
        idle = [opened.enter_context(dial(server)) for _ in range(IDLE)]
        claim = Later(server.claim, queue, wait=30)
        id = server.publish(queue)
        assert [each["id"] for each in claim.result()] == [id]
        assert server.get("/readyz").status == 200
        # Their time is over, and only theirs.
        until(lambda: all(is_closed(each) for each in idle))
        assert server.publish(queue)


def ready(connection: HTTPConnection) -> bool:
    connection.request("GET", "/readyz")
    return read(connection.getresponse()).status == 200


@pytest.fixture
def cramped(tmp_path: Path) -> Iterator[Served]:
    with served(f"sqlite:///{tmp_path}/q.db", tmp_path, files="150:200") as running:
        yield running


def test_the_limit_of_open_files_is_raised_as_far_as_it_goes(cramped: Served) -> None:
    assert resource.prlimit(cramped.process.pid, resource.RLIMIT_NOFILE) == (200, 200)


def test_whoever_comes_when_files_run_out_is_told(cramped: Served) -> None:
    with ExitStack() as opened:
        connected = cramped.connect()
        opened.callback(connected.close)
        assert ready(connected)
        for _ in range(400):
            opened.enter_context(dial(cramped))
        refused = cramped.post("/v1/publish", {"queue": "default"})
        assert (refused.status, refused.code) == (503, "TOO_MANY_CONNECTIONS")
        assert refused.headers["retry-after"] == "1"
        assert "connections refused" in cramped.log.read_text()
        # Files were kept back for those who are connected.
        assert ready(connected)
    until(lambda: cramped.get("/readyz").status == 200)
    assert cramped.publish("default")


def test_whoever_comes_when_no_file_is_left_at_all_waits_for_one(cramped: Served) -> None:
    """The limit falls below what is open, so that to accept fails."""
    files = resource.prlimit(cramped.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(cramped.process.pid, resource.RLIMIT_NOFILE, (3, files[1]))
    with dial(cramped) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        connection.sendall(b"Connection: close\r\n\r\n")
        until(lambda: "accept failed" in cramped.log.read_text())
        resource.prlimit(cramped.process.pid, resource.RLIMIT_NOFILE, files)
        assert heard(connection).startswith(b"HTTP/1.1 200 ")
    assert cramped.log.read_text().count("accept failed") == 1
