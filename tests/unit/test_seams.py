"""Nothing reaches through a broker to its store, its queue cache or its batches."""

import ast
from collections.abc import Iterator
from pathlib import Path

import penstock

SOURCE = Path(penstock.__file__).parent
INSIDE = ("broker", "stores")
PRIVATE = {"store", "directory", "commits", "lanes", "room"}


def is_broker(node: ast.expr) -> bool:
    """True for `broker`, `self.broker`, `call.broker`, `app.broker()` and the like."""
    if isinstance(node, ast.Await):
        return is_broker(node.value)
    if isinstance(node, ast.Call):
        return is_broker(node.func)
    name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return name in ("broker", "get_broker", "open_broker", "Broker", "RemoteBroker")


def find_reaches(tree: ast.AST) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in PRIVATE and is_broker(node.value):
            yield node


def test_only_the_broker_package_looks_into_a_broker() -> None:
    found = [
        f"{file.relative_to(SOURCE)}:{reach.lineno}"
        for file in SOURCE.rglob("*.py")
        if file.relative_to(SOURCE).parts[0] not in INSIDE
        for reach in find_reaches(ast.parse(file.read_text()))
    ]
    assert found == []


def test_a_reach_through_a_broker_is_found() -> None:
    text = "(await self.app.broker()).store; call.broker.directory; broker.admin; self.store"
    assert len(list(find_reaches(ast.parse(text)))) == 2
