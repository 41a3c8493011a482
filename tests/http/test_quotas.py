"""What callers hold at a time: one caller or tenant never has it all."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock import stores
from penstock.errors import TooManyWaiting
from penstock.http.asgi import AsgiApp
from penstock.http.auth.principal import Principal
from penstock.http.context import RESPONDER_EXTENSION
from penstock.http.quotas import Quota
from penstock.http.state import ServerLimits, ServerState
from penstock.model.message import Draft
from penstock.rules.access import EVERYTHING
from tests.cli.terminal import until
from tests.http.authorization import Exchange
from tests.http.keys import keyed, penstock, serve_with_auth, showing
from tests.http.served import Served, Stream, dial

# Of 2,000 event streams, a quarter.
CALLER_STREAMS = 500


def make_caller(subject: str, tenant: str = "acme") -> Principal:
    return Principal(subject, tenant, EVERYTHING)


ANN, BEN, CAT = make_caller("ann"), make_caller("ben"), make_caller("cat")
OTHER = make_caller("ann", "other")


def test_a_caller_has_a_quarter_and_a_tenant_half() -> None:
    quota = Quota("event streams", 8, shared=True)
    for caller in (ANN, ANN, BEN, BEN):
        quota.take(caller)
    with pytest.raises(TooManyWaiting, match="a caller may have 2 event streams at a time"):
        quota.take(ANN)
    with pytest.raises(TooManyWaiting, match="a tenant may have 4 event streams at a time"):
        quota.take(CAT)
    quota.take(OTHER)
    quota.release(BEN)
    quota.take(CAT)
    assert quota.held == {"acme": 4, "acme/ann": 2, "acme/ben": 1, "acme/cat": 1,
                          "other": 1, "other/ann": 1}  # fmt: skip


def test_all_callers_together_stay_within_the_limit() -> None:
    quota = Quota("event streams", 4, shared=True)
    for number in range(4):
        quota.take(make_caller("ann", f"t{number}"))
    with pytest.raises(TooManyWaiting, match="this server may have 4 event streams at a time"):
        quota.take(OTHER)


def test_a_refused_caller_holds_nothing_and_a_released_one_nothing_more() -> None:
    quota = Quota("bytes", 100, shared=True)
    with quota.hold(ANN, 25), pytest.raises(TooManyWaiting):
        quota.take(ANN, 1)
    with pytest.raises(ValueError, match="left"), quota.hold(BEN, 25):
        raise ValueError("left")
    assert (quota.total, quota.held) == (0, {})


def test_the_only_caller_of_a_server_without_credentials_may_have_everything() -> None:
    quota = Quota("event streams", 8, shared=False)
    for _ in range(8):
        quota.take(ANN)
    with pytest.raises(TooManyWaiting, match="this server"):
        quota.take(ANN)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home: Path = tmp_path_factory.mktemp("quotas")
    with serve_with_auth(f"sqlite:///{home}/q.db", home) as running:
        yield running


def listen(caller: Served) -> socket.socket:
    connection = dial(caller)
    head = (
        f"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {caller.key}\r\n\r\n"
    )
    connection.sendall(head.encode())
    return connection


def test_one_caller_cannot_take_all_event_streams(server: Served) -> None:
    viewer, other = keyed(server, "viewer"), keyed(server, "viewer")
    made = penstock(server.store, "key", "create", "b", "--role", "viewer", "--tenant", "b")
    with ExitStack() as stack:
        streams = [stack.enter_context(listen(viewer)) for _ in range(CALLER_STREAMS)]
        assert {each.recv(12) for each in streams} == {b"HTTP/1.1 200"}
        reply = viewer.get("/v1/events")
        assert (reply.status, reply.code) == (503, "TOO_MANY_WAITING")
        message = reply.json["error"]["message"]
        assert message == f"a caller may have {CALLER_STREAMS} event streams at a time"
        for allowed in (other, showing(server, made["key"])):
            Stream(allowed).close()
    until(lambda: is_open(viewer))


async def claim(app: AsgiApp) -> Exchange:
    exchange = Exchange(b'{"queues": [{"queue": "default"}], "wait": 30}')
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": "/v1/claim", "raw_path": b"/v1/claim", "root_path": "", "query_string": b"",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 1), "extensions": {RESPONDER_EXTENSION: {"responder": exchange}},
    }  # fmt: skip
    await app(scope, exchange.receive, exchange.send)
    return exchange


@pytest.mark.anyio
async def test_a_waiting_claim_holds_a_place_until_it_is_answered() -> None:
    async with await stores.open("sqlite://") as store:
        state = ServerState(store, b"s" * 32, ServerLimits(waiting=1), agents=False)
        app = AsgiApp(state)
        for _ in range(2):
            waiting = asyncio.ensure_future(claim(app))
            while not state.long_poller.waiting:  # noqa: ASYNC110 - it sets no event
                await asyncio.sleep(0)
            refused = await claim(app)
            assert refused.status == 503
            assert b"this server may have 1 waiting claims at a time" in refused.received
            await state.get_broker("default").publish(Draft())
            assert (await waiting).status == 200
        assert state.waiting_claims.total == 0


def is_open(caller: Served) -> bool:
    with listen(caller) as connection:
        return connection.recv(12) == b"HTTP/1.1 200"
