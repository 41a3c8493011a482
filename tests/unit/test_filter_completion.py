"""Completing an unfinished filter."""

import pytest

from penstock.errors import InvalidInput
from penstock.model.message import State
from penstock.rules.filter_completion import FilterSuggestion, complete
from penstock.rules.filter_parser import FIELDS, parse_filter

VALUES = {
    "queue": ["mail", "mail-eu", "video"],
    "type": ["order new", "order.new"],
    "consumer": ["host:1"],
    "error.kind": ["ValueError"],
}


def find_values(field: str, typed: str) -> list[str]:
    return VALUES.get(field, [])


@pytest.mark.parametrize(
    ("text", "start", "items"),
    [
        ("st", 0, ["state:"]),
        ("state:de", 6, ["dead"]),
        ("state:dead,fa", 11, ["failed"]),
        ("state:dead -qu", 12, ["queue:"]),
        ("(type:a OR queue:mail", 17, ["mail-eu"]),
        ("queue:vi", 6, ["video"]),
        ("worker:h", 7, ["host:1"]),
        ("error.k", 0, ["error.kind:"]),
        ("error.kind:V", 11, ["ValueError"]),
        ('type:"order n', 5, ['"order new"']),
        ("lab", 0, ["label."]),
        ("age>1", 4, ["10m", "1d", "1h"]),
        ("created>to", 8, ["today"]),
        ("body.x:", 7, []),
        ("nonsense:", 9, []),
    ],
)
def test_the_last_word_is_completed(text: str, start: int, items: list[str]) -> None:
    assert complete(text, len(text), find_values) == FilterSuggestion(start, items)


def test_an_empty_word_offers_every_field() -> None:
    found = complete("state:dead ", 11, find_values)
    assert (found.start, len(found.items)) == (11, len(FIELDS))
    assert set(complete("state:", 6, find_values).items) >= set(State)


def test_what_follows_the_position_does_not_matter() -> None:
    assert complete("queue:vi state:dead", 8, find_values) == FilterSuggestion(6, ["video"])
    for wrong in (-1, 20):
        with pytest.raises(InvalidInput, match="position"):
            complete("queue:vi state:dead", wrong, find_values)


@pytest.mark.parametrize("value", ["a b", 'say "x"', "a,b", "back\\slash", "star*", "é"])
def test_a_completed_value_is_one_that_the_parser_takes(value: str) -> None:
    (item,) = complete("type:", 5, lambda field, typed: [value]).items
    (term,) = [parse_filter(f"type:{item}", 0)]
    assert value in repr(term) or value.encode("unicode_escape").decode() in repr(term)
