"""Masked fields: what a caller without the right to reveal sees and may search."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.errors import FieldMasked, InvalidInput
from penstock.model.message import HistoryRow, Meta, Record, State, StoredMessage, Verb
from penstock.model.queue import Queue, Scope
from penstock.model.settings import QueueSettings, change
from penstock.rules.filter_parser import parse_filter
from penstock.rules.masking import (
    check_condition,
    check_filter,
    check_new_mask,
    check_unmasked,
    mask_json,
    mask_record,
    mask_result,
)

CARD = Queue(7, Scope(1, "default", "default"), "pay", settings=QueueSettings(mask=("body.card",)))


def masked(value: Any, *path: str) -> Any:
    return json.loads(mask_json(json.dumps(value).encode(), path))


@pytest.mark.parametrize(
    ("value", "path", "shown"),
    [
        ({"card": 42, "sum": 1}, ["card"], {"card": "***", "sum": 1}),
        ({"card": {"no": 1}}, ["card", "no"], {"card": {"no": "***"}}),
        ({"card": {"no": 1}}, ["card"], {"card": "***"}),
        ([{"card": 1}, [{"card": 2}], 3], ["card"], [{"card": "***"}, [{"card": "***"}], 3]),
        ({"cards": [1, 2]}, ["cards", "1"], {"cards": "***"}),
        ({"sum": 1}, ["card"], {"sum": 1}),
        ("text", ["card"], "text"),
        ({"sum": 1}, [], "***"),
    ],
)
def test_a_masked_path_is_hidden_wherever_it_is(value: Any, path: list[str], shown: Any) -> None:
    assert masked(value, *path) == shown


def test_a_body_that_is_not_json_is_masked_as_a_whole() -> None:
    assert mask_json(b"card=42", ("card",)) == b'"***"'
    assert mask_json(b"\xff", ("card",)) == b'"***"'
    assert mask_json(b"", ("card",)) == b""


def test_headers_labels_errors_and_results_are_masked() -> None:
    meta = Meta(headers={"x.token": "s", "y": "1"}, labels={"who": "ada"})
    row = HistoryRow(
        1, 1, 7, Verb.NACK, State.READY, None, "no 42", 1, 1, None, 1, None, 1, None, False, "at 42"
    )
    record = Record(
        StoredMessage(1, 7, "t", 0, 1, b"1", meta), State.READY, error="no 42", timeline=(row,)
    )
    found = mask_record(record, ("headers.x.token", "labels.who", "error", "body.card"))
    assert found.masked == ("headers.x.token", "labels.who", "error")
    assert found.record.message.meta.headers == {"x.token": "***", "y": "1"}
    assert found.record.message.meta.labels == {"who": "***"}
    assert found.record.error == "***"
    assert found.record.timeline == (replace(row, error="***", traceback="***"),)
    assert mask_result(b'{"a":1,"b":2}', ("result.a", "body.b")) == b'{"a":"***","b":2}'
    assert mask_record(record, ()).record is record


@pytest.mark.parametrize(
    ("mask", "filter"),
    [
        ("body.card", "body.card:4*"),
        ("body.card", "state:dead (type:a OR -body.card:1)"),
        ("body.card", "body.card.number>1"),
        ("body.card.number", "body.card:*"),
        ("body.card", "body.c*:1"),
        ("body.card", "body.0.card:1"),
        ("body.cards.no", "body.cards.3.no:1"),
        ("body", "body.anything:1"),
        ("headers.x.token", "header.x.token:1"),
        ("headers.x.token", "header.x*:1"),
        ("labels.who", "label.who:ada"),
        ("error", "error:timeout"),
        ("error", "error.kind:ValueError"),
        ("error", "fingerprint:0123456789abcdef"),
    ],
)
def test_a_masked_field_its_parents_and_globs_over_it_are_not_searched(
    mask: str, filter: str
) -> None:
    queue = replace(CARD, settings=QueueSettings(mask=(mask,)))
    with pytest.raises(FieldMasked, match="queue 'pay'"):
        check_filter(parse_filter(filter, 0), [queue], lambda scope, name: False)
    check_filter(parse_filter(filter, 0), [queue], lambda scope, name: name == "pay")


@pytest.mark.parametrize(
    "filter", ["body.sum>1", "label.card:1", "header.card:1", "type:card", "error:card"]
)
def test_other_fields_are_searched(filter: str) -> None:
    check_filter(parse_filter(filter, 0), [CARD], lambda scope, name: False)


@pytest.mark.parametrize(
    "condition",
    [
        "message.body.card == '4711'",
        "has(message.body.card)",
        "message.body['card'].startsWith('4')",
        "message.body[message.type] == '4711'",
        "message.body.exists(name, message.body[name] == '4711')",
        "dyn(message.body).card == '4711'",
        "message.body.card.number == 4",
        r"message.body['ca\x72d'] == '4711'",
        "message.body . card == '4711'",
    ],
)
def test_a_condition_that_reads_a_masked_field_is_refused(condition: str) -> None:
    with pytest.raises(FieldMasked, match=r"body\.card"):
        check_condition(condition, [CARD], lambda scope, name: False)
    check_condition(condition, [CARD], lambda scope, name: True)


@pytest.mark.parametrize(
    "condition", ["", "message.body.sum > 5", "message.body['sum'] > 5", "message.type == 'card'"]
)
def test_a_condition_over_other_fields_is_tried(condition: str) -> None:
    check_condition(condition, [CARD], lambda scope, name: False)


def test_a_mask_is_lifted_and_a_masked_body_replaced_only_by_a_caller_who_sees_it() -> None:
    def hides(scope: str, name: str) -> bool:
        return False

    check_new_mask(CARD, ("error", "body.card"), hides)
    check_unmasked(CARD, "headers", "replacing", hides)
    check_new_mask(CARD, (), lambda scope, name: True)
    with pytest.raises(FieldMasked, match=r"body\.card"):
        check_new_mask(CARD, ("body.sum",), hides)
    with pytest.raises(FieldMasked, match=r"body\.card"):
        check_unmasked(CARD, "body", "replacing", hides)


@pytest.mark.parametrize(
    "entry", ["", "card", "body.", "body..a", "body.a*", "headers", "type", "body a", "error.x"]
)
def test_a_mask_names_a_field(entry: str) -> None:
    with pytest.raises(InvalidInput, match="mask"):
        change(QueueSettings(), {"mask": [entry]})
    with pytest.raises(InvalidInput, match="mask"):
        change(QueueSettings(), {"mask": ["error"] * 51})
