"""The service as a plain ASGI app: in process, mounted in FastAPI, and under hypercorn."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.applications import Starlette
from starlette.routing import Mount

from penstock.errors import InvalidInput, StoreUnusable
from penstock.http import PenstockApp, TrustedIssuers, create_app
from penstock.http.asgi import AsgiResponder
from penstock.http.context import Message
from penstock.http.dashboard import answers
from tests.app.scenes import until_true
from tests.cli.terminal import until
from tests.http.asgi_client import AsgiClient, lifespan
from tests.http.served import Later, Reply, Served, Stream, read
from tests.servers.places import free_port

pytestmark = pytest.mark.anyio


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/queue.db"


def mount_in_fastapi(queue: PenstockApp) -> FastAPI:
    host = FastAPI(lifespan=queue.lifespan)
    host.mount("/queue", queue)

    @host.middleware("http")
    async def mark(request: Request, call_next: Any) -> Any:
        return await call_next(request)

    @host.get("/hello")
    async def hello() -> str:
        return "hello"

    return host


def mount_in_starlette(queue: PenstockApp) -> Starlette:
    @asynccontextmanager
    async def own(host: Starlette) -> AsyncIterator[None]:
        async with queue.running():
            yield

    return Starlette(routes=[Mount("/a/b", queue)], lifespan=own)


HOSTS: dict[str, tuple[Callable[[PenstockApp], Any], str]] = {
    "alone": (lambda queue: queue, ""),
    "fastapi": (mount_in_fastapi, "/queue"),
    "starlette": (mount_in_starlette, "/a/b"),
}


@pytest.fixture(params=HOSTS)
async def client(request: pytest.FixtureRequest, url: str) -> AsyncIterator[AsgiClient]:
    make, prefix = HOSTS[request.param]
    host: Any = make(create_app(url))
    async with lifespan(host):
        client = AsgiClient(host, prefix)
        assert (await client.post("/v1/queues", {"name": "mail"})).status == 201
        yield client


def read_waiting(metrics: Reply) -> float:
    name = "penstock_waiting_claims "
    lines = metrics.body.decode().splitlines()
    return float(next(each for each in lines if each.startswith(name)).removeprefix(name))


async def waiting(client: AsgiClient) -> float:
    return read_waiting(await client.get("/metrics"))


async def wait_for_claims(client: AsgiClient, count: int) -> None:
    async def holds() -> bool:
        return await waiting(client) == count

    await until_true(holds)


async def publish(client: AsgiClient) -> str:
    reply = await client.post("/v1/publish", {"queue": "mail", "body": {"to": "ada"}})
    assert reply.status == 201, reply
    id: str = reply.json["id"]
    return id


async def test_a_waiting_claim_gets_a_message_and_completes_it(client: AsgiClient) -> None:
    claim = client.claim("mail")
    await wait_for_claims(client, 1)
    id = await publish(client)
    (message,) = (await claim.reply()).json["messages"]
    assert (message["id"], message["body"]) == (id, {"to": "ada"})
    done = await client.post("/v1/complete", {"token": message["token"], "result": 1})
    assert done.json == {"id": id, "state": "completed"}
    assert (await client.get(f"/v1/messages/{id}/result")).json == 1


async def test_a_claim_whose_client_disconnects_leaves_the_message_to_others(
    client: AsgiClient,
) -> None:
    gone, other = client.claim("mail"), client.claim("mail", wait=0)
    await other.reply()
    await wait_for_claims(client, 1)
    gone.disconnect()
    # Well before its 30 s of waiting are over.
    async with asyncio.timeout(15):
        assert (await gone.reply()).json["messages"] == []
    assert await waiting(client) == 0
    id = await publish(client)
    (message,) = (await client.claim("mail").reply()).json["messages"]
    assert (message["id"], message["deliveries"]) == (id, 1)


async def test_a_client_that_leaves_before_its_claim_is_served_takes_no_message(
    client: AsgiClient,
) -> None:
    id = await publish(client)
    gone = client.claim("mail")
    gone.disconnect()
    assert (await gone.reply()).json["messages"] == []
    (message,) = (await client.claim("mail").reply()).json["messages"]
    assert message["id"] == id


async def test_a_responder_notices_a_disconnect() -> None:
    inbox: asyncio.Queue[Message] = asyncio.Queue()
    responder, noticed = AsgiResponder(inbox.get, inbox.put), asyncio.Event()
    responder.watch(noticed.set)
    inbox.put_nowait({"type": "http.disconnect"})
    async with asyncio.timeout(60):
        await noticed.wait()
    assert responder.stop_watching()


async def test_events_are_streamed_until_the_client_disconnects(client: AsgiClient) -> None:
    stream = client.call("GET", "/v1/events?queue=mail&kind=message.published")
    assert (await stream.next())["status"] == 200
    await stream.next()
    id = await publish(client)
    event = b""
    while b"data:" not in event:
        event = (await stream.next())["body"]
    data = next(line for line in event.decode().splitlines() if line.startswith("data:"))
    assert json.loads(data.removeprefix("data:"))["id"] == id
    stream.disconnect()
    async with asyncio.timeout(60):
        await stream.task


async def test_errors_and_documents_know_the_prefix(client: AsgiClient) -> None:
    document = (await client.get("/openapi.json")).json
    assert document["servers"] == [{"url": client.prefix or "/"}]
    assert "/v1/claim" in document["paths"]
    assert (await client.get("/v1/publish")).code == "METHOD_NOT_ALLOWED"
    assert (await client.get("/nothing")).code == "NOT_FOUND"
    assert (await client.call("HEAD", "/healthz").reply()).status == 200
    counted = (await client.get("/metrics")).body.decode()
    assert 'route="/v1/publish"' in counted
    assert f'"{client.prefix}/v1' not in counted if client.prefix else True


async def test_agents_run_with_the_app(client: AsgiClient) -> None:
    id = await publish(client)
    lost = await client.post("/v1/claim", {"queues": [{"queue": "mail"}], "lease": 0.1})
    assert len(lost.json["messages"]) == 1
    (message,) = (await client.claim("mail").reply()).json["messages"]
    assert (message["id"], message["deliveries"]) == (id, 2)


async def test_a_host_keeps_its_own_routes(url: str) -> None:
    host = mount_in_fastapi(create_app(url))
    async with lifespan(host):
        assert (await AsgiClient(host).get("/hello")).json == "hello"


async def test_the_end_of_the_lifespan_answers_claims_and_closes_the_store(url: str) -> None:
    app = create_app(url)
    client = AsgiClient(app)
    async with lifespan(app):
        await client.post("/v1/queues", {"name": "mail"})
        claim = client.claim("mail")
        await wait_for_claims(client, 1)
    assert (await claim.reply()).json["messages"] == []
    late = await client.get("/readyz")
    assert (late.status, late.code) == (503, "STORE_CLOSED")


async def test_an_app_runs_again_after_its_end(url: str) -> None:
    app = create_app(url)
    for _ in range(2):
        async with lifespan(app):
            assert (await AsgiClient(app).get("/readyz")).status == 200


async def test_the_first_request_starts_an_app_without_a_lifespan(url: str) -> None:
    app = create_app(url)
    client = AsgiClient(app)
    replies = await asyncio.gather(*(client.get("/readyz") for _ in range(5)))
    assert [reply.status for reply in replies] == [200] * 5
    await app.stop()


def test_a_lazily_started_app_is_closed_with_the_event_loop(url: str) -> None:
    app = create_app(url)

    async def ask() -> int:
        return (await AsgiClient(app).get("/readyz")).status

    assert [asyncio.run(ask()), asyncio.run(ask())] == [200, 200]
    assert app.task is not None
    assert (app.task.done(), app.app) == (True, None)


async def test_a_store_that_cannot_be_opened_is_an_error_of_the_request_or_of_the_start(
    tmp_path: Path,
) -> None:
    (tmp_path / "queue.db").write_text("this is no database" * 100)
    app = create_app(f"sqlite:///{tmp_path}/queue.db")
    for _ in range(2):
        assert (await AsgiClient(app).get("/readyz")).status == 503
    with pytest.raises(StoreUnusable, match="is damaged"):
        async with lifespan(app):
            pass


async def test_without_authentication_only_this_machine_is_served(url: str) -> None:
    app = create_app(url)
    async with app.running():
        far = AsgiClient(app).call("GET", "/v1/queues")
        far.scope["client"] = ("192.0.2.7", 1)
        assert (await far.reply()).code == "FORBIDDEN"


async def test_with_authentication_clients_need_a_key(url: str) -> None:
    app = create_app(url, auth=True)
    async with app.running():
        client = AsgiClient(app)
        assert (await client.get("/v1/queues")).code == "UNAUTHENTICATED"
        assert (await client.get("/healthz")).status == 200


async def test_wrong_options_are_refused_at_once(url: str) -> None:
    with pytest.raises(InvalidInput, match="jwks_url"):
        create_app(url, auth=TrustedIssuers(issuer="https://id.example.org"))
    with pytest.raises(InvalidInput, match="trusted-proxies"):
        create_app(url, trusted_proxies=["everywhere"])


class Hypercorn(Served):
    """An app of a module under hypercorn."""

    def __init__(self, target: str, url: str, folder: Path, prefix: str) -> None:
        self.key = None
        self.store = url
        self.prefix = prefix
        self.port = free_port()
        self.log = folder / "hypercorn.log"
        command = [sys.executable, "-m", "hypercorn", target, "--bind", f"127.0.0.1:{self.port}"]
        root = Path(__file__).parents[2]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=root, env={"PENSTOCK_URL": url}, stdout=log, stderr=log
            )

    def order(self, number: int) -> Any:
        """Asks the host, not the mounted app."""
        connection = self.connect()
        connection.request("POST", f"/orders/{number}")
        reply = read(connection.getresponse())
        connection.close()
        assert reply.status == 202, reply
        return reply.json


@pytest.fixture
def mounted(url: str, tmp_path: Path) -> Iterator[Hypercorn]:
    server = Hypercorn("examples.mounted:app", url, tmp_path, "/queue")
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.end()


def count_waiting(server: Served) -> float:
    return read_waiting(server.get("/metrics"))


def test_the_mounted_example_works_under_hypercorn(mounted: Hypercorn) -> None:
    mounted.order(7)
    message = mounted.claim_one("mail")
    assert mounted.post("/v1/complete", {"token": message["token"]}).json["state"] == "completed"
    stream = Stream(mounted, kind="message.published")
    claim = Later(mounted.claim, "mail", wait=30)
    until(lambda: count_waiting(mounted) == 1)
    order = mounted.order(8)
    assert [each["id"] for each in claim.result()] == [str(order["job"])]
    stream.until("message.published", str(order["job"]))
    stream.close()
    assert mounted.stop() == 0, mounted.log.read_text()


def test_a_client_of_hypercorn_that_leaves_gets_no_message(mounted: Hypercorn) -> None:
    queue = mounted.queue()
    connection = mounted.connect()
    body = json.dumps({"queues": [{"queue": queue}], "wait": 30})
    connection.request("POST", "/queue/v1/claim", body)
    until(lambda: count_waiting(mounted) == 1)
    connection.close()
    until(lambda: count_waiting(mounted) == 0)
    id = mounted.publish(queue)
    assert mounted.claim_one(queue)["id"] == id


async def test_causes_are_read_again_once_the_settings_of_a_queue_change(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its errors may be masked from then on."""
    monkeypatch.setattr(answers, "CAUSES_FRESH_S", 3_600.0)
    app = create_app(url)
    async with app.running():
        client = AsgiClient(app)

        async def list_causes() -> list[str]:
            found: list[str] = (await client.get("/v1/failures/causes")).json["fingerprints"]
            return found

        async def is_read_again() -> bool:
            return len(await list_causes()) == 2

        await reject(client, "KeyError: x")
        assert len(await list_causes()) == 1
        await reject(client, "ValueError: new")
        assert len(await list_causes()) == 1
        settings = {"settings": {"mask": ["error"]}}
        await client.call("PATCH", "/v1/queues/default", settings).reply()
        await until_true(is_read_again)


async def reject(client: AsgiClient, error: str) -> None:
    await client.post("/v1/publish", {"queue": "default", "body": 1})
    (message,) = (await client.claim("default").reply()).json["messages"]
    reply = await client.post("/v1/reject", {"token": message["token"], "error": error})
    assert reply.status == 200, reply
