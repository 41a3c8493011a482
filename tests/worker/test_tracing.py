"""Traces go on from who publishes to who runs; shown in a process that has the SDK loaded."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import tracing
from tests.http.served import served

SPANS = Path(__file__).with_name("traced_app.py")


@pytest.fixture(scope="module", params=["file", "http"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("traced")
    store = f"sqlite:///{folder}/queue.db"
    if request.param == "file":
        yield store
        return
    with served(store, folder) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture(scope="module")
def spans(url: str) -> dict[str, Any]:
    line = [sys.executable, "-W", "error", str(SPANS), url]
    said = subprocess.run(line, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    return {name_span(span): span for span in json.loads(said.stdout.splitlines()[-1])}


def name_span(span: dict[str, Any]) -> str:
    """With the task that it runs, if it does."""
    task = span["attributes"].get("penstock.type", "").rpartition(".")[2]
    return f"{span['name']} {task}".strip()


def trace_of(span: dict[str, Any]) -> str:
    found: str = span["context"]["trace_id"]
    return found


def test_a_run_belongs_to_the_trace_that_published_it(spans: dict[str, Any]) -> None:
    request, inside = spans["request"], spans["inside"]
    published, ran = spans["publish default"], spans["process default double"]
    assert {trace_of(each) for each in (request, inside, published, ran)} == {trace_of(request)}
    assert published["kind"] == "SpanKind.PRODUCER"
    assert published["parent_id"] == request["context"]["span_id"]
    assert ran["kind"] == "SpanKind.CONSUMER"
    assert ran["attributes"]["messaging.system"] == "penstock"


def test_a_run_that_fails_says_so(spans: dict[str, Any]) -> None:
    failed = spans["process default fail"]
    assert failed["status"]["status_code"] == "ERROR"
    assert failed["events"][0]["attributes"]["exception.message"] == "no"


def test_a_batch_of_one_goes_on_with_its_trace(spans: dict[str, Any]) -> None:
    assert trace_of(spans["process many message"]) == trace_of(spans["request"])


def test_without_the_sdk_nothing_is_loaded() -> None:
    code = "import penstock, penstock.worker.dispatcher, sys; print('opentelemetry' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


def test_what_is_no_trace_is_looked_past() -> None:
    assert tracing.parse_traceparent(None) is None
