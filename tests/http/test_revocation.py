"""Requests that take long end when their caller loses its rights."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest

from tests.cli.terminal import until
from tests.http.keys import keyed, serve_with_auth
from tests.http.served import Reply, Served, Stream


@pytest.fixture(scope="module")
def server(store: str, folder: Path) -> Iterator[Served]:
    with serve_with_auth(store, folder) as running:
        yield running


def revoke(server: Served, caller: Served) -> None:
    assert caller.key is not None
    assert server.ask("DELETE", f"/v1/keys/{caller.key.split('_')[1]}").status == 200
    until(lambda: caller.get("/v1/workers").status == 401)


def lose_role(server: Served, caller: Served) -> None:
    assert server.ask("PUT", "/v1/roles/passing", {"grants": ["publish"]}).status == 200
    until(lambda: caller.get("/v1/workers").status == 403)


LOSSES = pytest.mark.parametrize(("lose", "status"), [(revoke, 401), (lose_role, 403)])
Loss = Callable[[Served, Served], None]


@LOSSES
def test_a_waiting_claim_hands_out_nothing_after_its_right_was_taken(
    server: Served, lose: Loss, status: int
) -> None:
    queue = server.queue()
    server.ask("PUT", "/v1/roles/passing", {"grants": ["consume"]})
    worker = keyed(server, "passing")
    replies: Queue[Reply] = Queue()
    sent = {"queues": [{"queue": queue}], "wait": 30}
    waiting = Thread(target=lambda: replies.put(worker.post("/v1/claim", sent)))
    waiting.start()
    until(lambda: b"penstock_waiting_claims 1.0" in server.get("/metrics").body)
    lose(server, worker)
    id = server.publish(queue)
    waiting.join()
    assert replies.get().status == status
    assert server.claim_one(queue)["id"] == id


@LOSSES
def test_an_event_stream_ends_when_its_caller_may_not_listen(
    server: Served, lose: Loss, status: int
) -> None:
    queue = server.queue()
    server.ask("PUT", "/v1/roles/passing", {"grants": ["read", "consume"]})
    reader, stays = keyed(server, "passing"), keyed(server, "viewer")
    stream, other = Stream(reader), Stream(stays)
    try:
        stream.until("message.published", server.publish(queue))
        lose(server, reader)
        with suppress(HTTPException, ConnectionError):
            while stream.frame():
                pass
        other.until("message.published", server.publish(queue))
    finally:
        stream.close()
        other.close()


def test_an_event_stream_goes_by_the_rights_of_the_moment(server: Served) -> None:
    ours, theirs = server.queue(), server.queue()
    server.ask("PUT", "/v1/roles/narrowing", {"grants": ["read", "consume"]})
    stream = Stream(keyed(server, "narrowing"))
    try:
        stream.until("message.published", server.publish(theirs))
        server.ask("PUT", "/v1/roles/narrowing", {"grants": ["read", f"-read:{theirs}"]})

        def hears_no_more() -> bool:
            unheard, heard = server.publish(theirs), server.publish(ours)
            seen = stream.until("message.published", heard)
            return unheard not in {each.get("id") for each in seen}

        assert until(hears_no_more)
    finally:
        stream.close()
