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
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from penstock.http.openapi import make_document
from penstock.http.routes import OPERATIONS
from tests.http.served import Served, served

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="session")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home: Path = tmp_path_factory.mktemp("fuzzed")
    with served(f"sqlite:///{home}/fuzzed.db", home) as running:
        yield running


# More by ./dev fuzz.
EXAMPLES = int(os.environ.get("PENSTOCK_FUZZ", "4"))
# A stream has no end, and lines of JSON are not what schemathesis writes.
schema = schemathesis.openapi.from_dict(make_document(OPERATIONS)).exclude(
    path=["/v1/events", "/v1/queues/{queue}/import"]
)


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_breaks_the_service_or_its_word(case: Case[Any], fuzzed: Served) -> None:
    hurry(case)
    case.call_and_validate(base_url=f"http://127.0.0.1:{fuzzed.port}", checks=CHECKS)


def hurry(case: Case[Any]) -> None:
    """Nobody waits here."""
    if isinstance(case.body, dict):
        case.body.pop("rate", None)
        if "wait" in case.body and isinstance(case.body["wait"], int | float):
            case.body["wait"] = 0
    if case.query and "wait" in case.query:
        case.query["wait"] = 0
