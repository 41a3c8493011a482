"""Whatever is sent, no answer is a 5xx, and every answer is what OpenAPI says it is."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.generation.feedback import FeedbackSources
from schemathesis.pytest._test_builder import build_operation_test
from schemathesis.python._constants.orchestrator import make_constants_value_source
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from penstock.http.openapi import make_document
from penstock.http.routes import OPERATIONS
from tests.extent import ALL
from tests.http.served import Served, served

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home: Path = tmp_path_factory.mktemp("fuzzed")
    with served(f"sqlite:///{home}/fuzzed.db", home) as running:
        yield running


# Beside those of the document. More by ./dev fuzz.
EXAMPLES = int(os.environ.get("PENSTOCK_FUZZ", "4" if ALL else "2"))
# Streams have no end, and lines of JSON are not what schemathesis writes.
EXCLUDED = ("/v1/events", "/v1/changes", "/v1/queues/{queue}/import")
LABELS = sorted(
    f"{operation.method} {operation.path.replace(':path}', '}')}"
    for operation in OPERATIONS
    if operation.path not in EXCLUDED
)


@pytest.fixture(scope="module")
def schema() -> Any:
    return schemathesis.openapi.from_dict(make_document(OPERATIONS))


@pytest.mark.parametrize("label", LABELS)
def test_no_request_breaks_the_service_or_its_word(label: str, schema: Any, fuzzed: Served) -> None:
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    def send(case: Case[Any]) -> None:
        hurry(case)
        case.call_and_validate(base_url=f"http://127.0.0.1:{fuzzed.port}", checks=CHECKS)

    method, _, path = label.partition(" ")
    # `schema.parametrize` would make all requests when tests are collected, in every process.
    build_operation_test(
        config=schema.config, operation=schema[path][method], test_func=send, given_kwargs={},
        feedback=FeedbackSources(constants_value_source=make_constants_value_source(schema)),
    )()  # fmt: skip


def hurry(case: Case[Any]) -> None:
    """Nobody waits here."""
    if isinstance(case.body, dict):
        case.body.pop("rate", None)
        if "wait" in case.body and isinstance(case.body["wait"], int | float):
            case.body["wait"] = 0
    if case.query and "wait" in case.query:
        case.query["wait"] = 0
