"""Every mutation applies to the source as it is, and is caught."""

from collections import Counter

import pytest

from tests.extent import LONG
from tests.mutation.__main__ import main
from tests.mutation.mutation import Mutation, NotApplicable
from tests.mutation.mutations import MUTATIONS
from tests.mutation.trial import Verdict, attempt
from tests.mutation.workshop import ROOT

CHEAP = ("settle_any_fence", "claim_counts_no_delivery", "one_bad_item_fails_all")
OUTDATED = Mutation("outdated", "rules/lifecycle.py", "settle", "no such line", "", "tests/unit")
SENSELESS = Mutation(
    "senseless",
    "rules/lifecycle.py",
    "rank_of",
    "def rank_of(",
    "def (",
    "tests/unit/test_ranks.py",
)


def find_mutation(name: str) -> Mutation:
    return next(each for each in MUTATIONS if each.name == name)


def fault(mutation: Mutation) -> str | None:
    text = (ROOT / mutation.path).read_text()
    try:
        after = mutation.applied(text).splitlines()
    except NotApplicable as error:
        return str(error)
    changed = sum(old != new for old, new in zip(text.splitlines(), after, strict=True))
    return None if changed == 1 else f"{mutation.name}: {changed} lines are changed"


def test_every_mutation_changes_one_line() -> None:
    assert [told for each in MUTATIONS if (told := fault(each)) is not None] == []


def test_every_mutation_has_a_name_of_its_own_and_a_test_to_notice_it() -> None:
    counts = Counter(each.name for each in MUTATIONS)
    assert [name for name, count in counts.items() if count > 1] == []
    hints = {each.hint.partition("::")[0] for each in MUTATIONS}
    assert [hint for hint in hints if not (ROOT / hint).is_file()] == []


@pytest.mark.parametrize("place", ["settle", "nowhere"])
def test_a_line_that_is_gone_is_not_changed(place: str) -> None:
    mutation = Mutation("gone", "rules/lifecycle.py", place, "no such line", "", "")
    with pytest.raises(NotApplicable, match="gone"):
        mutation.applied((ROOT / mutation.path).read_text())


def test_a_line_that_is_there_twice_is_not_changed() -> None:
    text = "-- name: a\nSELECT 1;\nSELECT 1;\n-- name: b\nSELECT 1;\n"
    assert "SELECT 2" in Mutation("n", "f.sql", "b", "SELECT 1", "SELECT 2", "").applied(text)
    with pytest.raises(NotApplicable, match="2 times"):
        Mutation("n", "f.sql", "a", "SELECT 1", "SELECT 2", "").applied(text)


@LONG
@pytest.mark.timeout(600)
def test_cheap_mutations_are_caught_and_useless_ones_are_told() -> None:
    tried = list(attempt([*map(find_mutation, CHEAP), OUTDATED, SENSELESS], jobs=1))
    assert [trial.verdict for trial in tried] == [
        *[Verdict.CAUGHT] * len(CHEAP),
        Verdict.OUTDATED,
        Verdict.SENSELESS,
    ]


@LONG
@pytest.mark.timeout(7_200)
def test_every_mutation_is_caught(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--jobs", "2"]) == 0, capsys.readouterr().out
