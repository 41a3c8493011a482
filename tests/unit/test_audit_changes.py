"""What an audit entry tells of a change: fields before and after, within bounds, no secrets."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.message import Draft
from penstock.model.queue import Schedule
from penstock.model.settings import Backoff, QueueSettings
from penstock.rules.access import Key, PreviousKey
from penstock.rules.audit_changes import (
    MAX_BYTES,
    describe_changes,
    format_changes,
    read_changes,
)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (QueueSettings(), QueueSettings(lease=60.0), {"lease": [30.0, 60.0]}),
        (
            QueueSettings(),
            QueueSettings(backoff=Backoff(max=60)),
            {"backoff.max": [3600.0, 60]},
        ),
        (QueueSettings(), QueueSettings(), None),
        ({}, {"name": "mail"}, {"name": [None, "mail"]}),
        ({"paused": True}, {"paused": False}, {"paused": [True, False]}),
        ({"state": "dead"}, {}, {"state": ["dead", None]}),
    ],
)
def test_changed_fields_are_told_before_and_after(before: Any, after: Any, told: Any) -> None:
    assert read_changes(describe_changes(before, after)) == told


def test_secrets_are_told_as_changed() -> None:
    old = Key(id="1", name="k", digest="0123")
    new = msgspec.structs.replace(old, digest="4567", former=PreviousKey("0123", 9))
    assert read_changes(describe_changes(old, new)) == {"digest": "changed", "former": "changed"}
    draft = Draft(
        body=b"card 4711", headers={"authorization": "s3cret"}, callback="https://u?t=s3cret"
    )
    said = describe_changes({}, Schedule("s", "* * * * *", draft))
    assert "4711" not in said
    assert "s3cret" not in said
    assert "draft.body" in said


@given(st.dictionaries(st.text(max_size=50), st.text(max_size=9_000), max_size=300))
def test_an_entry_stays_within_its_bounds(fields: dict[str, str]) -> None:
    said = describe_changes({}, fields)
    assert len(said.encode()) <= MAX_BYTES
    if fields:
        assert read_changes(said)


def test_an_entry_of_very_many_fields_tells_some_of_them() -> None:
    said = describe_changes({}, {f"field-{number}": number for number in range(5_000)})
    assert len(said) <= MAX_BYTES
    changes = read_changes(said) or {}
    assert changes["..."] == "changed"
    assert "field-0" in changes


def test_changes_are_written_for_people() -> None:
    said = describe_changes({"lease": 30, "body": 1}, {"lease": 60, "body": 2})
    assert format_changes(said) == "lease 30 -> 60, body changed"
    assert format_changes(describe_changes({}, {"name": "mail"})) == "name mail"
    assert format_changes("FORBIDDEN 3") == "FORBIDDEN 3"
    assert read_changes("{oops") is None
