"""Requests with common fields take a short way, and mean the same on both."""

from typing import Any

import msgspec
import pytest

from penstock.model.fields import MAX_BATCH
from penstock.model.store_types import Entry
from penstock.model.uniform_batch import UniformBatch, join_entries
from penstock.wire.publish import (
    PlainBatchRequest,
    PlainRequest,
    PublishBatchRequest,
    PublishRequest,
    decode_batch_request,
    decode_request,
    make_draft,
)

encode = msgspec.json.encode
PLAIN: list[dict[str, Any]] = [
    {"body": None},
    {"queue": "mail", "type": "mail.send", "body": {"to": "ada"}, "priority": -3},
]
OTHER: list[dict[str, Any]] = [
    {"body": 1, "delay": 5},
    {"body": 1, "headers": {"a": "b"}},
    {"body_base64": "AAE=", "content_type": "application/octet-stream"},
    {"body": 1, "content_type": "application/json"},
]
REFUSED: list[Any] = [
    {"queue": "a b", "body": 1},
    {"queue": "", "body": 1},
    {"queue": 7, "body": 1},
    {"type": "", "body": 1},
    {"priority": "high", "body": 1},
    {"priority": 2**63, "body": 1},
    {"colour": "red", "body": 1},
    [],
]


@pytest.mark.parametrize("fields", PLAIN + OTHER)
def test_both_ways_make_the_same_draft(fields: dict[str, Any]) -> None:
    sent = encode(fields)
    read = decode_request(sent)
    assert isinstance(read, PlainRequest) == (fields in PLAIN)
    assert make_draft(read) == make_draft(msgspec.json.decode(sent, type=PublishRequest))


@pytest.mark.parametrize("fields", REFUSED)
def test_a_refused_request_gets_the_error_of_the_full_type(fields: Any) -> None:
    for decode, full, sent in (
        (decode_request, PublishRequest, encode(fields)),
        (decode_batch_request, PublishBatchRequest, encode({"messages": [PLAIN[0], fields]})),
    ):
        with pytest.raises(msgspec.ValidationError) as raised:
            decode(sent)
        with pytest.raises(msgspec.ValidationError) as wanted:
            msgspec.json.decode(sent, type=full)
        assert str(raised.value) == str(wanted.value)


def test_one_other_message_takes_the_batch_the_long_way() -> None:
    plain = decode_batch_request(encode({"messages": PLAIN, "atomic": True}))
    mixed = decode_batch_request(encode({"messages": [*PLAIN, OTHER[0]]}))
    assert isinstance(plain, PlainBatchRequest)
    assert plain.atomic
    assert isinstance(mixed, PublishBatchRequest)
    assert [make_draft(each).delay for each in mixed.messages] == [0, 0, 5]


@pytest.mark.parametrize("count", [0, MAX_BATCH + 1])
def test_a_batch_of_plain_requests_has_the_same_bounds(count: int) -> None:
    with pytest.raises(msgspec.ValidationError, match="length"):
        decode_batch_request(encode({"messages": [{"body": 1}] * count}))


def test_uniform_batches_with_one_heading_are_joined_without_their_entries() -> None:
    first = UniformBatch(Entry(1, "a", b"1"), [b"1", b"2"])
    second = UniformBatch(Entry(1, "a", b"3"), [b"3"])
    joined = join_entries([first, second])
    assert isinstance(joined, UniformBatch)
    assert joined.bodies == [b"1", b"2", b"3"]
    assert first.bodies == [b"1", b"2"]


@pytest.mark.parametrize("other", [Entry(2, "a", b"3"), Entry(1, "a", b"3", meta="{}")])
def test_batches_with_different_headings_are_joined_entry_by_entry(other: Entry) -> None:
    first = UniformBatch(Entry(1, "a", b"1"), [b"1", b"2"])
    expected = [Entry(1, "a", b"1"), Entry(1, "a", b"2"), other]
    assert join_entries([first, UniformBatch(other, [b"3"])]) == expected
    assert join_entries([first, (other,)]) == expected
