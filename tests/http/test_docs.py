"""What the documentation says of the service is so."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.errors import PenstockError
from penstock.http.errors import find_status
from penstock.http.events.hub import KINDS, LIVE
from penstock.http.openapi import TAGS
from penstock.http.routes import OPERATIONS
from tests.cli.terminal import until
from tests.docs.tables import table, word
from tests.docs.test_reference import tree
from tests.http.flaky import FlakyProxy, refuse_every_other_call
from tests.http.keys import keyed, serve_with_auth
from tests.http.reference import PAGE, TITLES, page
from tests.http.served import Served

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "how-to" / "http.md").read_text()
CURL = re.compile(r"^curl .*$", re.MULTILINE)


def test_the_reference_is_what_the_routes_say() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.http.reference"


def test_every_tag_has_a_title_and_a_description() -> None:
    tags = {operation.tag for operation in OPERATIONS}
    assert tags == set(TITLES)
    assert tags == set(TAGS)


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
    with (
        serve_with_auth(f"sqlite:///{tmp_path}/queue.db", tmp_path) as server,
        FlakyProxy(server.port, refuse_every_other_call) as flaky,
    ):
        queue = server.queue()
        ids = [server.publish(queue, number) for number in range(3)]
        with working(flaky.url, queue, keyed(server, "worker").key):
            until(lambda: all(server.state(id) == "completed" for id in ids))
    assert {409, 503} <= set(flaky.answered)


def test_the_example_answer_of_the_guide_is_json() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", GUIDE, re.DOTALL)
    assert json.loads(block)["queues"] == {"mail": "active"}
