"""The tree of errors is as drawn."""

import re
from collections.abc import Iterator

from penstock import errors
from penstock.errors import PenstockError

LINE = re.compile(
    r"^(?P<indent>[│├└─ ]*)(?P<name>[A-Z]\w+) +(?P<code>[A-Z][A-Z_]+)\b", re.MULTILINE
)


def read_tree() -> Iterator[tuple[str, str, str]]:
    """(class, parent, code) of every line of the tree in the docstring."""
    above = {0: "PenstockError"}
    for line in LINE.finditer(errors.__doc__ or ""):
        depth = len(line["indent"]) // 4
        above[depth] = line["name"]
        yield line["name"], above[depth - 1], line["code"]


def real(parent: type[PenstockError] = PenstockError) -> Iterator[tuple[str, str, str]]:
    for child in parent.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child.__name__, parent.__name__, child.code
            yield from real(child)


def test_the_tree_drawn_is_the_tree_of_classes_in_the_same_order() -> None:
    assert list(read_tree()) == list(real())


def test_every_class_of_the_module_is_in_the_tree() -> None:
    classes = {name for name, value in vars(errors).items() if isinstance(value, type)}
    assert classes == {name for name, _, _ in real()} | {"PenstockError"}


def test_every_class_has_a_code_of_its_own() -> None:
    codes = [PenstockError.code, *(code for _, _, code in real())]
    assert len(set(codes)) == len(codes)


def test_a_code_is_the_name_of_its_class_in_capitals() -> None:
    assert [name for name, _, code in real() if code.replace("_", "") != name.upper()] == []


# Every code that semantics.md names for an error.
NAMED = (
    "NOT_YET",
    "NAME_TAKEN",
    "ARCHIVED",
    "LOCK_LOST",
    "INVALID_STATE",
    "IDEMPOTENCY_CONFLICT",
    "QUEUE_FULL",
    "OUTCOME_UNKNOWN",
    "BUSY",
    "QUEUE_PAUSED",
    "QUEUE_DRAINING",
    "QUEUE_ARCHIVED",
    "SCOPE_PAUSED",
)


def test_every_code_the_contract_names_exists() -> None:
    assert set(NAMED) <= {code for _, _, code in real()}
