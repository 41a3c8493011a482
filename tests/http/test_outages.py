"""What happens when the store, a server or a caller is gone in the middle."""

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.terminal import until
from tests.http.served import Served, Stream, served
from tests.servers.postgres import Postgres
from tests.servers.server import Unavailable


@pytest.fixture
def database(postgres_server: Postgres) -> Iterator[Postgres]:
    """One that may be stopped; the shared one says whether there can be any."""
    try:
        own = Postgres()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with own:
        yield own


def test_a_store_that_is_away_is_a_503_and_comes_back_by_itself(
    database: Postgres, tmp_path: Path
) -> None:
    with database.database() as url, served(url, tmp_path) as server:
        queue = server.queue()
        before = server.publish(queue)
        with closing(Stream(server, queue=queue)) as stream:
            database.stop()
            for reply in (
                server.post("/v1/publish", {"queue": queue, "body": 1}),
                server.post("/v1/claim", {"queues": [{"queue": queue}], "wait": 5}),
                server.get(f"/v1/messages/{before}"),
                server.get("/readyz"),
            ):
                assert (reply.status, reply.headers["retry-after"]) == (503, "1"), reply
            assert server.get("/healthz").status == 200
            database.start()
            until(lambda: server.get("/readyz").status == 200)
            after = server.publish(queue)
            assert stream.until("message.published", after)
        ids = [message["id"] for message in server.claim(queue, limit=9)]
        assert ids == [before, after]


def test_a_server_that_is_killed_loses_no_message_and_another_goes_on(
    server: Served, store: str, folder: Path
) -> None:
    queue = server.queue()
    ids = [server.publish(queue) for _ in range(3)]
    with served(store, folder) as doomed:
        held = doomed.claim(queue, limit=2, lease=1)
        doomed.stop(signal.SIGKILL)
    assert server.post("/v1/complete", {"token": held[0]["token"]}).status == 200
    rest = [server.claim_one(queue)["id"] for _ in range(2)]
    assert set(rest) == set(ids) - {held[0]["id"]}
    assert server.post("/v1/complete", {"token": held[1]["token"]}).code == "LOCK_LOST"


def test_requests_under_way_are_finished_at_a_stop(own_server: Served) -> None:
    queue = own_server.queue()
    connection = own_server.connect()
    body = b'{"queue": "%b"}' % queue.encode()
    connection.putrequest("POST", "/v1/publish")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body[:5])
    own_server.get("/healthz")
    own_server.process.send_signal(signal.SIGTERM)
    until(lambda: "server stopping" in own_server.log.read_text())
    connection.send(body[5:])
    assert connection.getresponse().status == 201
    connection.close()
    assert own_server.process.wait(60) == 0


def test_a_slow_request_does_not_hold_a_stop_beyond_the_grace(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path}/q.db", tmp_path, "--grace", 1) as server:
        connection = server.connect()
        connection.putrequest("POST", "/v1/publish")
        connection.putheader("Content-Length", "100")
        connection.endheaders(b"{")
        server.get("/healthz")
        assert server.stop() == 0
        connection.close()


def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path}/q.db", tmp_path, "--grace", 600) as server:
        connection = server.connect()
        connection.putrequest("POST", "/v1/publish")
        connection.putheader("Content-Length", "100")
        connection.endheaders(b"{")
        server.get("/healthz")
        server.process.send_signal(signal.SIGTERM)
        until(lambda: "server stopping" in server.log.read_text())
        assert server.stop() == 128 + signal.SIGTERM
        connection.close()
