"""The schema commands."""

import json
from pathlib import Path

from tests.cli.consumer import publish
from tests.cli.terminal import Terminal

ORDER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
MODELS = """
import msgspec


class Order(msgspec.Struct):
    n: int
"""


def test_a_schema_is_drafted_added_bound_and_unbound(terminal: Terminal) -> None:
    terminal.call("queue", "create", "orders")
    publish(queue="orders", type="order.new")
    drafted = terminal.call("schema", "draft", "orders")
    assert json.loads(drafted.out) == ORDER
    Path("order.json").write_text(drafted.out)
    assert "order@1 is stored" in terminal.call("schema", "add", "order", "order.json").out
    bound = terminal.call("schema", "bind", "orders", "order", "--type", "order.*", "--follow")
    assert bound.out == "messages of type order.* of queue orders must match order@1\n"
    tick = ("schedule", "create", "nightly", "--cron", "0 3 * * *", "--queue", "orders",
            "--type", "order.new", "--body", "{}")  # fmt: skip
    refused = terminal.call(*tick, code=1)
    assert "does not match schema order@1" in refused.err
    assert "orders order.* @1 follows" in terminal.call("schema", "list").out
    assert json.loads(terminal.call("schema", "show", "order@1").out) == ORDER
    terminal.call("schema", "unbind", "orders", "--type", "order.*")
    terminal.call(*tick)
    terminal.call("schema", "delete", "order")
    assert "no schemas" in terminal.call("schema", "list").out


def test_a_breaking_version_is_reported_and_exits_with_1(terminal: Terminal) -> None:
    Path("models.py").write_text(MODELS)
    terminal.call("schema", "add", "order", "--from", "models:Order")
    Path("new.json").write_text(json.dumps({**ORDER, "required": ["n", "id"]}))
    report = terminal.call("schema", "check", "order", "new.json", code=1)
    assert "version 2 of order is not compatible (backward)" in report.out
    assert "/id: the new version requires it" in report.out
    refused = terminal.call("schema", "add", "order", "new.json", code=1)
    assert "is not backward compatible" in refused.err
    Path("bad.json").write_text('{"properties": {"a": {"$ref": "https://x.org/a"}}}')
    refused = terminal.call("schema", "add", "bad", "bad.json", code=1)
    assert "at /properties/a/$ref" in refused.err
