"""Files that travel with a result, over HTTP."""

import base64
import os
import socket
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from penstock import Context, Penstock
from penstock.artifacts.rules import Artifact
from penstock.client import Client, SyncClient
from penstock.client.artifacts import RemoteArtifacts
from penstock.client.sync import SyncArtifacts
from penstock.errors import BodyTooLarge, LockLost, NotFound
from penstock.model.message import Draft, Nack
from tests.cli.terminal import until
from tests.http.keys import keyed, serve_with_auth
from tests.http.served import Reply, Served, dial, heard, raw, served
from tests.http.test_client import verbs

pytestmark = pytest.mark.anyio
LARGEST = 1_000


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One that takes short files alone."""
    home = tmp_path_factory.mktemp("strict")
    with served(f"sqlite:///{home}/q.db", home, "--max-artifact", LARGEST) as running:
        yield running


def inline(name: str, content: bytes = b"a") -> dict[str, str]:
    return {"name": name, "content": base64.b64encode(content).decode()}


def put(server: Served, token: str, name: str, content: bytes = b"a") -> Reply:
    return server.ask("PUT", f"/v1/artifacts/{token}/{quote(name, safe='')}", content)


def get(server: Served, id: str, name: str) -> Reply:
    return server.get(f"/v1/messages/{id}/artifacts/{quote(name, safe='')}")


def list_sizes(server: Served, id: str) -> dict[str, int]:
    reply = server.get(f"/v1/messages/{id}/artifacts")
    assert reply.status == 200, reply
    return {each["name"]: each["size"] for each in reply.json["artifacts"]}


def claim_one(server: Served) -> Any:
    queue = server.queue()
    server.publish(queue)
    return server.claim_one(queue)


def complete(server: Served, message: Any, **more: Any) -> Reply:
    return server.post("/v1/complete", {"token": message["token"], **more})


def test_files_come_with_the_result(server: Served) -> None:
    message = claim_one(server)
    sent = [inline("a.txt", b"one"), inline("b.bin", bytes(range(256)))]
    assert complete(server, message, result=1, artifacts=sent).status == 200
    assert list_sizes(server, message["id"]) == {"a.txt": 3, "b.bin": 256}
    assert get(server, message["id"], "b.bin").body == bytes(range(256))
    assert server.get(f"/v1/messages/{message['id']}/result").json == 1


def test_a_file_is_uploaded_while_the_message_is_in_hand(server: Served) -> None:
    message, large = claim_one(server), os.urandom(3_000_000)
    reply = put(server, message["token"], "large.bin", large)
    kept = {"name": "large.bin", "size": len(large), "content_type": "application/octet-stream"}
    assert (reply.status, reply.json) == (201, kept)
    assert list_sizes(server, message["id"]) == {}
    assert get(server, message["id"], "large.bin").code == "NOT_FOUND"
    complete(server, message, artifacts=[inline("small.txt")])
    assert list_sizes(server, message["id"]) == {"large.bin": len(large), "small.txt": 1}
    assert get(server, message["id"], "large.bin").body == large


def test_a_message_is_named_by_its_queue_and_name_too(server: Served) -> None:
    queue = server.queue()
    server.publish(queue, name="n")
    complete(server, server.claim_one(queue), artifacts=[inline("a.txt")])
    assert list_sizes(server, f"{queue}/n") == {"a.txt": 1}
    assert get(server, f"{queue}/n", "a.txt").body == b"a"
    assert server.get("/v1/messages/999999999/artifacts").code == "NOT_FOUND"


def test_a_download_is_saved_and_never_shown(server: Served) -> None:
    message = claim_one(server)
    complete(
        server, message, artifacts=[inline('Übersicht "1".html', b"<script>alert(1)</script>")]
    )
    reply = get(server, message["id"], 'Übersicht "1".html')
    assert reply.headers["content-disposition"] == (
        'attachment; filename="_bersicht _1_.html";'
        " filename*=UTF-8''%C3%9Cbersicht%20%221%22.html"
    )
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-security-policy"].startswith("sandbox")
    assert reply.headers["content-length"] == "25"


BAD = ("../../etc/passwd", "..\\..\\boot.ini", "..", ".", ".hidden", "/etc/passwd", "C:\\x", "C:x",
       "a/b", "a\x00b", "a\nb", "e\u0301", "x" * 256, "con", "NUL.txt", "Com1 .log")  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_could_lead_elsewhere_is_refused(server: Served, name: str) -> None:
    message = claim_one(server)
    reply = complete(server, message, artifacts=[inline("fine"), inline(name)])
    assert (reply.status, reply.code) == (422, "INVALID_INPUT")
    # No route has a line break.
    assert put(server, message["token"], name).status == 422
    assert server.state(message["id"]) == "claimed"
    complete(server, message, artifacts=[inline("%2e%2e")])
    assert list_sizes(server, message["id"]) == {"%2e%2e": 1}
    assert get(server, message["id"], "%2e%2e").body == b"a"
    assert get(server, message["id"], name).status in (404, 422)


@pytest.mark.parametrize("path", ["../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..%2f..%2fetc"])
def test_a_path_is_decoded_once_and_leads_nowhere(server: Served, path: str) -> None:
    message = claim_one(server)
    begin = f"PUT /v1/artifacts/{message['token']}/{path} HTTP/1.1\r\nHost: localhost\r\n"
    said = raw(server, f"{begin}Content-Length: 1\r\nConnection: close\r\n\r\na".encode())
    assert said.startswith(b"HTTP/1.1 422")
    complete(server, message)
    assert list_sizes(server, message["id"]) == {}


def test_a_stale_token_changes_nothing(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    old = server.claim_one(queue)
    assert put(server, old["token"], "a.txt", b"old").status == 201
    server.post("/v1/nack", {"token": old["token"], "delay": 0})
    new = server.claim_one(queue)
    assert put(server, new["token"], "a.txt", b"new").status == 201
    assert put(server, old["token"], "a.txt", b"stale").code == "LOCK_LOST"
    assert complete(server, old, artifacts=[inline("a.txt", b"stale")]).code == "LOCK_LOST"
    complete(server, new)
    assert put(server, new["token"], "a.txt", b"late").code == "ALREADY_SETTLED"
    again = complete(server, new, artifacts=[inline("a.txt", b"late"), inline("b.txt")])
    assert (again.status, again.code) == (409, "ALREADY_SETTLED")
    assert list_sizes(server, id) == {"a.txt": 3}
    assert get(server, id, "a.txt").body == b"new"


def test_a_forged_token_is_refused(server: Served) -> None:
    token = claim_one(server)["token"]
    for wrong in (f"9{token}", token[:-1], "x"):
        assert put(server, wrong, "a.txt").code == "INVALID_TOKEN"


def test_each_item_of_a_batch_answers_for_itself(server: Served) -> None:
    first, second, third, fourth = (claim_one(server) for _ in range(4))
    server.post("/v1/nack", {"token": third["token"]})
    items = [
        {"token": first["token"], "artifacts": [inline("a.txt")]},
        {"token": second["token"], "artifacts": [inline("../a.txt")]},
        {"token": third["token"], "artifacts": [inline("a.txt")]},
        {"token": fourth["token"], "result": 4},
        {"token": "forged", "artifacts": [inline("a.txt")]},
    ]
    done = server.post("/v1/complete/batch", {"items": items}).json
    codes = [item.get("error", {}).get("code") for item in done["items"]]
    assert codes[:2] == [None, "INVALID_INPUT"]
    assert codes[2] in ("LOCK_LOST", "INVALID_STATE")
    assert codes[3:] == [None, "INVALID_TOKEN"]
    assert (done["done"], list_sizes(server, first["id"])) == (2, {"a.txt": 1})
    assert server.state(second["id"]) == "claimed"
    complete(server, second)
    assert list_sizes(server, second["id"]) == {}


@pytest.mark.parametrize(
    "more", [{"result_base64": "?"}, {"artifacts": [inline("a.txt"), inline("a.txt")]},
             {"artifacts": [{"name": "a.txt", "content": "?"}]},
             {"artifacts": [inline("a.txt"), inline("A.txt")]}],
)  # fmt: skip
def test_a_refused_completion_leaves_no_file(server: Served, more: dict[str, Any]) -> None:
    message = claim_one(server)
    reply = complete(server, message, **{"artifacts": [inline("a.txt")], **more})
    assert reply.status in (409, 422)
    assert complete(server, message).status == 200
    assert list_sizes(server, message["id"]) == {}


def test_size_count_and_sum_are_limited(strict: Served) -> None:
    message = claim_one(strict)
    token = message["token"]
    long = put(strict, token, "long", bytes(LARGEST + 1))
    assert (long.status, long.code) == (413, "BODY_TOO_LARGE")
    within = complete(strict, message, artifacts=[inline("long", bytes(LARGEST + 1))])
    assert (within.status, within.code) == (413, "BODY_TOO_LARGE")
    for number in range(10):
        assert put(strict, token, f"{number}", bytes(LARGEST)).status == 201
    assert put(strict, token, "more").code == "BODY_TOO_LARGE"
    assert put(strict, token, "9", b"").status == 201
    for number in range(10, 32):
        assert put(strict, token, f"{number}").status == 201
    full = put(strict, token, "more", b"")
    assert (full.status, full.code) == (409, "REFUSED")
    complete(strict, message)
    found = list_sizes(strict, message["id"])
    assert (len(found), sum(found.values())) == (32, 9 * LARGEST + 22)


def test_a_body_without_an_end_is_cut_off(strict: Served) -> None:
    token = claim_one(strict)["token"]
    begin = f"PUT /v1/artifacts/{token}/a HTTP/1.1\r\nHost: localhost\r\n"
    chunk = b"400\r\n" + bytes(1_024) + b"\r\n"
    head = f"{begin}Transfer-Encoding: chunked\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", strict.port), 30) as connection:
        connection.sendall(head)
        for _ in range(2_000):
            try:
                connection.sendall(chunk)
            except OSError:
                break
        assert b"413" in connection.recv(100)


def test_uploads_at_once_are_no_more_than_allowed(strict: Served) -> None:
    message = claim_one(strict)
    with ThreadPoolExecutor(12) as threads:
        replies = threads.map(
            lambda number: put(strict, message["token"], f"{number}", bytes(LARGEST)), range(24)
        )
        codes = sorted(reply.status for reply in replies)
    assert codes == [201] * 10 + [413] * 14
    complete(strict, message)
    assert sum(list_sizes(strict, message["id"]).values()) == 10 * LARGEST


def test_two_spellings_of_one_name_are_refused(server: Served) -> None:
    token = claim_one(server)["token"]
    assert put(server, token, "Straße.txt").status == 201
    other = put(server, token, "STRASSE.txt")
    assert (other.status, other.code) == (409, "CONFLICT")
    assert put(server, token, "é" * 127).status == 201


def begin_upload(server: Served, token: str) -> socket.socket:
    """Half of it."""
    head = f"PUT /v1/artifacts/{token}/a HTTP/1.1\r\nHost: localhost\r\n"
    connection = socket.create_connection(("127.0.0.1", server.port), 30)
    connection.sendall(f"{head}Content-Length: 4000000\r\n\r\n".encode() + bytes(2_000_000))
    return connection


def declare_upload(server: Served, token: str, name: str, *headers: str) -> socket.socket:
    """Sends the head of an upload and nothing of its body."""
    key = () if server.key is None else (f"Authorization: Bearer {server.key}",)
    lines = (f"PUT /v1/artifacts/{token}/{name} HTTP/1.1", "Host: localhost", *key, *headers)
    connection = dial(server)
    connection.sendall("\r\n".join((*lines, "", "")).encode())
    return connection


EXPECT = "Expect: 100-continue"


def status_of(connection: socket.socket) -> str:
    return connection.recv(65_536).decode().split()[1]


def test_a_declared_length_beyond_the_limit_is_refused_before_it_is_sent(strict: Served) -> None:
    token = claim_one(strict)["token"]
    with declare_upload(strict, token, "a", EXPECT, f"Content-Length: {LARGEST + 1}") as refused:
        assert status_of(refused) == "413"
    with declare_upload(strict, token, "a", EXPECT, f"Content-Length: {LARGEST}") as allowed:
        assert status_of(allowed) == "100"
        allowed.sendall(bytes(LARGEST))
        assert status_of(allowed) == "201"


@pytest.mark.parametrize(
    ("length", "count", "refusal"),
    [(f"Content-Length: {LARGEST}", 10, "413"), ("Transfer-Encoding: chunked", 32, "409")],
)
def test_unfinished_uploads_count_for_their_message_until_they_end(
    strict: Served, length: str, count: int, refusal: str
) -> None:
    token, another = claim_one(strict)["token"], claim_one(strict)["token"]
    with ExitStack() as stack:

        def begin(name: str) -> str:
            return status_of(
                stack.enter_context(declare_upload(strict, token, name, EXPECT, length))
            )

        # Two uploads of one name need room for both.
        assert [begin(f"{number % 9}") for number in range(count)] == ["100"] * count
        assert begin("0") == refusal
        assert put(strict, another, "a").status == 201
    until(lambda: put(strict, token, "a", bytes(LARGEST)).status == 201)


@pytest.fixture(scope="module")
def keyed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("keyed")
    with serve_with_auth(f"sqlite:///{home}/q.db", home) as running:
        yield running


def test_a_caller_has_a_share_of_unfinished_uploads(keyed_server: Served) -> None:
    """By default 20 files of 100 MB in all, and a quarter of that for one key."""
    message, length = claim_one(keyed_server), f"Content-Length: {100 * 1_048_576}"
    other, queue = keyed(keyed_server, "worker"), keyed_server.queue()
    keyed_server.publish(queue)
    with ExitStack() as stack:

        def begin(name: str) -> socket.socket:
            upload = declare_upload(keyed_server, message["token"], name, EXPECT, length)
            return stack.enter_context(upload)

        assert [status_of(begin(f"{number}")) for number in range(5)] == ["100"] * 5
        answer = heard(begin("more"))
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"TOO_MANY_WAITING" in answer
        assert b"a caller may have 524288000 bytes of unfinished uploads at a time" in answer
        assert put(other, other.claim_one(queue)["token"], "a").status == 201
    until(lambda: put(keyed_server, message["token"], "small").status == 201)


def test_half_an_upload_is_seen_by_nobody(own_server: Served, tmp_path: Path) -> None:
    aside = tmp_path / "own.db.artifacts"

    def begun() -> bool:
        return any(path.is_file() for path in aside.rglob("*"))

    message = claim_one(own_server)
    with begin_upload(own_server, message["token"]):
        until(begun)
    until(lambda: not begun())
    with begin_upload(own_server, message["token"]):
        until(begun)
        own_server.end()
    with served(own_server.store, tmp_path) as again:
        complete(again, message, artifacts=[inline("b")])
        assert list_sizes(again, message["id"]) == {"b": 1}


def test_the_agent_that_sweeps_is_told(server: Served) -> None:
    agents = server.get("/v1/system-agents").json["agents"]
    assert "artifact_pruner" in [agent["name"] for agent in agents]


@pytest.fixture
async def client(server: Served) -> AsyncIterator[Client]:
    async with Client(f"http://127.0.0.1:{server.port}") as made:
        yield made


async def test_a_client_attaches_lists_and_reads(
    server: Served, client: Client, tmp_path: Path
) -> None:
    queue = server.queue()
    await client.publish(Draft(queue=queue))
    (message,) = (await client.claim(queue, consumer="me", wait=20)).messages
    (tmp_path / "from").write_bytes(os.urandom(1_000_000))

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one "
        yield b"two"

    assert await client.artifacts.attach(message, "a b%.bin", tmp_path / "from") == Artifact(
        "a b%.bin", 1_000_000
    )
    await client.artifacts.attach(message, "pieces", pieces())
    await client.artifacts.attach(message, "empty", b"")
    assert await client.artifacts.list_artifacts(message.id) == []
    await client.complete(message)
    names = [each.name for each in await client.artifacts.list_artifacts(message.id)]
    assert names == ["a b%.bin", "empty", "pieces"]
    assert await client.artifacts.read(message.id, "pieces") == b"one two"
    assert await client.artifacts.read(message.id, "empty") == b""
    await client.artifacts.download(message.id, "a b%.bin", tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == (tmp_path / "from").read_bytes()
    with pytest.raises(NotFound):
        await client.artifacts.read(message.id, "other")


async def test_a_client_is_told_what_is_wrong(strict: Served) -> None:
    queue = strict.queue()
    async with Client(f"http://127.0.0.1:{strict.port}") as client:
        await client.publish(Draft(queue=queue))
        (message,) = (await client.claim(queue, consumer="me", wait=20)).messages
        with pytest.raises(BodyTooLarge):
            await client.artifacts.attach(message, "a", bytes(2 * LARGEST))
        token = client.tokens[message.id, message.fence]
        await client.settle(message, Nack(delay=0))
        with pytest.raises(NotFound, match="not claimed by this client"):
            await client.artifacts.attach(message, "a", b"a")
        await client.claim(queue, consumer="you", wait=20)
        client.tokens[message.id, message.fence] = token
        with pytest.raises(LockLost):
            await client.artifacts.attach(message, "a", b"a")


def test_the_same_for_callers_without_a_loop(server: Served) -> None:
    assert verbs(RemoteArtifacts) - verbs(SyncArtifacts) == {"spool", "attach_uploads"}
    queue = server.queue()
    with SyncClient(f"http://127.0.0.1:{server.port}") as client:
        client.publish(Draft(queue=queue))
        (message,) = client.claim(queue, consumer="me", wait=20).messages
        client.artifacts.attach(message, "a.txt", b"a")
        client.complete(message)
        assert client.artifacts.list_artifacts(message.id) == [Artifact("a.txt", 1)]
        assert client.artifacts.read(message.id, "a.txt") == b"a"


async def test_a_task_attaches_over_http(server: Served, tmp_path: Path) -> None:
    queue = server.queue()
    app = Penstock(f"http://127.0.0.1:{server.port}")

    @app.task(queue=queue)
    async def report(context: Context) -> str:
        await context.aattach("report.csv", b"a,b\n")
        return "done"

    async with await app.worker():
        job = await report.aenqueue()
        assert await job.aresult(30) == "done"
    assert await job.aartifacts() == [Artifact("report.csv", 4)]
    assert await job.aartifact("report.csv") == b"a,b\n"
    await app.aclose()
