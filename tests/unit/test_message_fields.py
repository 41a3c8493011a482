"""Every form of a message has the fields that model/fields.py declares, with its bounds."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct, inspect

from penstock.app.task import Choices, TaskOptions
from penstock.model.fields import FIELDS, JOB_FIELDS, MESSAGE_FIELDS
from penstock.model.message import PLAIN, Draft, Meta
from penstock.model.settings import QueueSettings
from penstock.rules.drafts import make_meta
from penstock.wire.consume import Delivery
from penstock.wire.publish import SCAIQUEUE_FIELDS, PublishRequest, make_draft, make_publish_request
from penstock.wire.records import MessageView

PACKAGE = Path(__file__).parents[2] / "src" / "penstock"
VALUES: dict[str, Any] = {
    "text": "word", "texts": {"k": "v"}, "url": "https://example.org/", "number": 2.5,
    "whole": 7, "moment": 1_000_000, "bytes": b"{}", "name": "mail", "dedup": None,
}  # fmt: skip


def full_draft() -> Draft:
    values = {name: VALUES[field.kind] for name, field in FIELDS.items()}
    return Draft(**values)


def test_a_draft_has_every_field_and_no_other() -> None:
    # No client sets these: rules, broadcasts and the server write them.
    assert set(Draft.__struct_fields__) == {*FIELDS, "path", "fan", "publisher"}


def test_a_stored_message_keeps_every_field_of_its_draft() -> None:
    meta = make_meta(full_draft(), QueueSettings())
    others = {"dedup", "path", "fan", "publisher"}
    kept = {name: getattr(meta, name) for name in Meta.__struct_fields__ if name not in others}
    assert kept == {name: VALUES[FIELDS[name].kind] for name in kept}
    assert set(MESSAGE_FIELDS) <= set(kept)


def test_a_draft_survives_the_wire() -> None:
    assert make_draft(make_publish_request(full_draft())) == msgspec.structs.replace(
        full_draft(), hops=0
    )


@pytest.mark.parametrize("form", [Draft, Meta, PublishRequest, Delivery, MessageView])
def test_a_form_of_a_message_has_the_shared_defaults(form: type[Struct]) -> None:
    found = {
        each.name: each.default
        for each in msgspec.structs.fields(form)
        if each.name in MESSAGE_FIELDS
    }
    assert found == {name: getattr(PLAIN, name) for name in MESSAGE_FIELDS}


def test_the_options_of_a_task_are_fields_of_a_message() -> None:
    assert set(JOB_FIELDS) <= set(TaskOptions.__struct_fields__)
    own = set(TaskOptions.__struct_fields__) - set(FIELDS)
    assert own == {"key", "unique", "connection", "wake"}
    types = {each.name: each.type for each in msgspec.structs.fields(TaskOptions)}
    hints = {**Choices.__annotations__, "name": types["name"]}
    # Durations may be given as timedeltas, too.
    given = {name: str(hints[name]).replace(" | datetime.timedelta", "") for name in types}
    assert given == {
        name: kind.__name__
        if isinstance(kind, type) and given[name] == kind.__name__
        else str(kind)
        for name, kind in types.items()
    }


def bounds(kind: inspect.Type) -> tuple[float | None, float | None] | None:
    match kind:
        case inspect.UnionType():
            return next(filter(None, map(bounds, kind.types)), None)
        case inspect.Metadata():
            return bounds(kind.type)
        case inspect.DictType():
            return bounds(kind.value_type)
        case inspect.StrType() if kind.max_length is not None:
            return kind.min_length or 0, kind.max_length
        case inspect.IntType() | inspect.FloatType():
            return kind.ge, kind.le
        case _:
            return None


def test_the_wire_has_the_bounds_of_every_field() -> None:
    request = inspect.type_info(PublishRequest)
    assert isinstance(request, inspect.StructType)
    wire = {each.name: bounds(each.type) for each in request.fields}
    wire = {name: bound for name, bound in wire.items() if name not in SCAIQUEUE_FIELDS}
    assert set(wire) ^ set(FIELDS) == {"body_base64", "unique", "hops"}
    bounded = {name for name in FIELDS if wire.get(name) is not None}
    assert {name: wire[name] for name in bounded} == {
        name: (FIELDS[name].least, FIELDS[name].most) for name in bounded
    }
    # Patterns, timestamps, bodies and the struct of a dedup key have other bounds.
    other = {"queue", "parent_id", "body", "dedup", "run_at", "expires_at", "deadline", "hops"}
    assert set(FIELDS) - bounded == other


@pytest.mark.parametrize("number", ["43_200", "32_767", "316_224_000", "127}"])
def test_a_bound_of_a_field_is_written_once(number: str) -> None:
    found = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if re.search(rf"\b{re.escape(number)}", path.read_text())
    ]
    assert found in ([], ["model/fields.py"])
