"""Schemas: what is refused, how versions are compared, and what code exports."""

from typing import Any

import msgspec
import pydantic
import pytest

from penstock import Penstock
from penstock.app.schemas import export_schema
from penstock.broker.schemas import process as schema_process
from penstock.broker.schemas.process import check_in_process
from penstock.broker.schemas.registry import read_schema_text
from penstock.errors import InvalidInput
from penstock.model.schemas import Compatibility
from penstock.rules.schema_compat import compare_versions
from penstock.rules.schema_cost import has_countless_errors
from penstock.rules.schema_draft import infer_schema
from penstock.rules.schemas import (
    COUNTLESS,
    compile_schema,
    decode_json,
    find_mismatches,
    parse_schema,
)

ITEM: dict[str, Any] = {
    "type": "object",
    "properties": {"sku": {"type": "string"}},
    "required": ["sku"],
}
ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "items": {"type": "array", "items": ITEM}},
    "required": ["n"],
}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"properties": {"a": {"$ref": "https://example.org/x"}}}, "at /properties/a/.ref"),
        ({"properties": {"a": {"pattern": "(?=a)"}}}, "at /properties/a/pattern.*backtrack"),
        ({"properties": {"a": {"type": "strin"}}}, "at /properties/a/type"),
        ({"$schema": "https://example.org/own"}, "Unknown meta-schema"),
        (b'{"title": "%s"}' % (b"x" * 10_000_000), "at most 262,144"),
        (b'{"not":' * 65 + b"{}" + b"}" * 65, "deeper than 64 at /not/not"),
        (
            {"allOf": [{"pattern": "a"}] * 199 + [{"patternProperties": {"b": {}, "c": {}}}]},
            "201 patterns; at most 200",
        ),
        (
            {
                "$defs": {
                    **{f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 4} for n in range(12)},
                    "d12": {"type": "string"},
                },
                "$ref": "#/$defs/d0",
            },
            "at /.defs/d.*same schema again and again",
        ),
        (
            {
                "$defs": {
                    f"d{n}": {"allOf": [{"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}}}] * 2}
                    for n in range(12)
                },
                "$ref": "#/$defs/d0",
            },
            "same schema again and again",
        ),
        (b"{", "not valid JSON"),
        (b"[]", "object or a boolean"),
    ],
)
def test_a_schema_that_cannot_be_used_safely_is_refused(schema: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        compile_schema(decode_json(read_schema_text(schema)))


def test_a_schema_may_be_recursive() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}, "required": ["name"]}
    validator = compile_schema(tree)
    assert find_mismatches(validator, b'{"name": 1, "child": {"name": 2}}') == ()
    (found,) = find_mismatches(validator, b'{"name": 1, "child": {"child": {"name": 1}}}')
    assert (found.pointer, found.keyword) == ("/child", "required")


@pytest.mark.parametrize(
    ("schema", "countless"),
    [
        ({"anyOf": [{"properties": {"a": {"$ref": "#"}}}, {"required": ["b"]}]}, False),
        ({"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": ["b"]}] * 2}, True),
        ({"oneOf": [{"items": {"$ref": "#x"}}, {"items": [{"$ref": "#x"}]}], "$anchor": "x"}, True),
        ({"oneOf": [{"properties": {"t": {"const": n}}} for n in range(2_000)]}, False),
        ({"$ref": "#"}, False),
        (True, False),
    ],
)
def test_alternatives_that_contain_themselves_have_countless_errors(
    schema: Any, countless: bool
) -> None:
    assert parse_schema(msgspec.json.encode(schema)) == schema
    assert has_countless_errors(schema) is countless


def test_countless_mismatches_are_one() -> None:
    schema = {"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": ["b"]}] * 2}
    body: dict[str, Any] = {}
    for _ in range(10):
        body = {"a": body, "b": 1}
    validator = compile_schema(schema)
    assert find_mismatches(validator, msgspec.json.encode(body), countless=True) == (COUNTLESS,)
    assert find_mismatches(validator, b'{"b": 1}', countless=True) == ()


def test_a_mismatch_never_shows_the_value() -> None:
    checks = {"minimum": 5, "enum": ["a"], "const": 1, "pattern": "^a$", "format": "uuid",
              "maxLength": 1, "multipleOf": 7, "type": "string", "maxItems": 0, "maxProperties": 0,
              "oneOf": [False], "not": True, "propertyNames": {"maxLength": 1}}  # fmt: skip
    for keyword, value in checks.items():
        validator = compile_schema({keyword: value})
        for body in (b'"hunter2"', b"-4711", b'["hunter2"]', b'{"k": "hunter2", "l": 4711}'):
            told = repr(find_mismatches(validator, body))
            assert "hunter2" not in told
            assert "4711" not in told


def test_a_pointer_escapes_its_keys_and_counts_items() -> None:
    validator = compile_schema({"properties": {"a/b~": {"items": {"type": "string"}}}})
    (found,) = find_mismatches(validator, b'{"a/b~": ["x", 1]}')
    assert found.pointer == "/a~1b~0/1"


def change(**properties: Any) -> dict[str, Any]:
    return {**ORDER, "properties": {**ORDER["properties"], **properties}}


@pytest.mark.parametrize(
    ("new", "backward", "forward"),
    [
        (ORDER, [], []),
        (change(note={"type": "string"}), [], []),
        ({**change(note={"type": "string"}), "required": ["n", "note"]}, ["/note"], []),
        ({**ORDER, "required": []}, [], ["/n"]),
        (change(n={"type": "integer", "minimum": 0}), ["/n"], []),
        (change(n={"type": ["integer", "null"]}), [], ["/n"]),
        (change(items={"type": "array", "items": {**ITEM, "required": []}}), [], ["/items/*/sku"]),
        ({**ORDER, "properties": {"n": {"type": "integer"}}}, [], []),
        ({"$defs": {"o": ORDER}, "$ref": "#/$defs/o"}, [], []),
    ],
)
def test_versions_are_compared_field_by_field(
    new: Any, backward: list[str], forward: list[str]
) -> None:
    modes: list[tuple[Compatibility, list[str]]] = [
        ("backward", backward), ("forward", forward), ("full", [*backward, *forward]),
    ]  # fmt: skip
    for mode, expected in modes:
        found = compare_versions(ORDER, new, mode)
        assert ([each.pointer for each in found.breaks], found.unproven) == (expected, ())


def test_a_field_that_a_closed_schema_drops_breaks_its_producers() -> None:
    fewer = {**ORDER, "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    (found,) = compare_versions(ORDER, fewer, "backward").breaks
    assert found.pointer == "/items"
    assert compare_versions(fewer, ORDER, "full").breaks == ()


@pytest.mark.anyio
async def test_a_comparison_that_takes_too_long_ends_without_a_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine the processor time it is allowed takes longer.
    monkeypatch.setattr(schema_process, "MAX_WALL_S", 200.0)
    steps = {
        f"d{at}": {"properties": {key: {"$ref": f"#/$defs/d{at + 1}"} for key in "abc"}}
        for at in range(20)
    }
    bomb = {"$defs": {**steps, "d20": {"type": "string"}}, "$ref": "#/$defs/d0"}
    found = await check_in_process(bomb, {"type": "object"}, "full")
    assert (found.breaks, found.unproven) == ((), ("",))


def test_a_draft_names_types_and_fields_but_no_values() -> None:
    samples = [{"id": 1, "tags": ["secret"]}, {"id": 2.5, "tags": [], "note": None}]
    assert infer_schema(samples) == {
        "type": "object",
        "properties": {
            "id": {"type": "number"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "note": {"type": "null"},
        },
        "required": ["id", "tags"],
    }
    many = infer_schema([{f"id-{at}": at for at in range(300)}])
    assert many == {"type": "object", "additionalProperties": {"type": "integer"}}


class Line(pydantic.BaseModel):
    sku: str


class Basket(pydantic.BaseModel):
    lines: list[Line]


class Order(msgspec.Struct):
    n: int
    basket: Basket


def test_code_exports_schemas_of_tasks_and_models() -> None:
    app = Penstock("sqlite://")

    @app.task(name="order.place")
    def place(order: Order, note: str = "") -> None: ...

    (schema,) = app.schemas().values()
    validator = compile_schema(schema)
    call = place.call(Order(1, Basket(lines=[Line(sku="a")])))
    assert find_mismatches(validator, call.draft.body) == ()
    wrong = b'{"order": {"n": 1, "basket": {"lines": [{"sku": 1}]}}}'
    assert [each.pointer for each in find_mismatches(validator, wrong)] == [
        "/order/basket/lines/0/sku"
    ]
    assert export_schema(Basket)["title"] == "Basket"
    with pytest.raises(InvalidInput, match="has no JSON Schema"):
        export_schema(object)
