"""What the documentation says of the service is so."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from penstock.errors import PenstockError
from penstock.http.errors import find_status
from penstock.http.events.hub import KINDS, LIVE
from tests.cli.terminal import until
from tests.docs.tables import table, word
from tests.docs.test_reference import tree
from tests.http.keys import guarded, keyed
from tests.http.reference import PAGE, page
from tests.http.served import Served

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "how-to" / "http.md").read_text()
CURL = re.compile(r"^curl .*$", re.MULTILINE)


def test_the_reference_is_what_the_routes_say() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.http.reference"


def test_every_code_is_listed_with_its_status() -> None:
    rows = table(PAGE.read_text(), "status")
    listed = {
        code: int(row["status"])
        for row in rows
        for code in re.findall(r"`([A-Z_]+)`", row["codes"])
    }
    assert listed.pop("INTERNAL") == 500
    assert listed == {error.code: find_status(error("x")) for error in tree(PenstockError)}


def test_every_kind_of_event_is_listed() -> None:
    rows = table(PAGE.read_text(), "kind")
    listed = {word(row["kind"]): row["resumable"] for row in rows}
    assert listed == {kind: "no" if kind in LIVE else "yes" for kind in KINDS}


def test_every_call_of_the_guide_works(own_server: Served) -> None:
    calls = [call for call in CURL.findall(GUIDE) if "curl -N" not in call]
    assert len(calls) > 10
    for call in calls:
        line = call.replace("curl ", "curl -sS --fail-with-body ", 1).replace(
            "localhost:7070", f"localhost:{own_server.port}"
        )
        ran = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60,
                             check=False)  # fmt: skip
        assert ran.returncode == 0, (call, ran.stdout, ran.stderr)


needs_curl = pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("jq")), reason="needs curl and jq"
)


@contextmanager
def working(url: str, queue: str, key: str | None = None) -> Iterator[None]:
    """Runs the worker of the examples."""
    environment = {**os.environ, "PENSTOCK_SERVER": url, **({"PENSTOCK_KEY": key} if key else {})}
    with subprocess.Popen(
        ["sh", ROOT / "examples" / "worker.sh", queue],
        env=environment,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as worker:
        try:
            yield
            assert worker.poll() is None
        finally:
            os.killpg(worker.pid, 15)


@needs_curl
def test_a_worker_of_curl_alone_works(server: Served) -> None:
    queue = server.queue()
    ids = [server.publish(queue, {"number": number}) for number in range(3)]
    with working(f"http://127.0.0.1:{server.port}", queue):
        until(lambda: all(server.state(id) == "completed" for id in ids))
    results = [server.get(f"/v1/messages/{id}/result").json for id in ids]
    assert results == [{"echo": {"number": number}} for number in range(3)]


@needs_curl
def test_a_worker_of_curl_survives_409_and_503_and_shows_its_key(tmp_path: Path) -> None:
    with guarded(f"sqlite:///{tmp_path}/queue.db", tmp_path) as server, Flaky(server.port) as flaky:
        queue = server.queue()
        ids = [server.publish(queue, number) for number in range(3)]
        with working(flaky.url, queue, keyed(server, "worker").key):
            until(lambda: all(server.state(id) == "completed" for id in ids))
    assert {409, 503} <= set(flaky.answered)


class Flaky(ThreadingHTTPServer):
    """A proxy that refuses every other call with 503, and sends each `complete` twice: the worker
    sees the answer to the second one, 409."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), FlakyHandler)
        self.port = port
        self.answered: list[int] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> "Flaky":
        Thread(target=self.serve_forever).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class FlakyHandler(BaseHTTPRequestHandler):
    server: Flaky

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if not self.server.answered or self.server.answered[-1] != 503:
            self.answer(503, b"{}")
            return
        times = 2 if self.path == "/v1/complete" else 1
        replies = [self.forward(body) for _ in range(times)]
        self.answer(*replies[-1])

    def forward(self, body: bytes) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.server.port)
        try:
            shown = {"authorization": self.headers["authorization"]}
            connection.request("POST", self.path, body, shown)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def answer(self, status: int, body: bytes) -> None:
        self.server.answered.append(status)
        with suppress(OSError):
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *words: object) -> None:
        pass


def test_the_example_answer_of_the_guide_is_json() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)
    assert json.loads(block)["queues"] == {"mail": "active"}
