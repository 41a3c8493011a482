"""The place in line: who is served first under each ordering."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.message import NEVER, Draft
from penstock.model.settings import QueueSettings, change, get_preset
from penstock.rules.priority import clamp_priority, compute_rank
from tests.unit.leases import NOW, SECOND

MILLISECOND = 1_000


def order(settings: QueueSettings, drafts: list[Draft], apart: int = 0) -> list[bytes]:
    """The bodies as served: by rank, then by id, each published `apart` after the other."""

    def place(numbered: tuple[int, Draft]) -> tuple[int, int]:
        number, draft = numbered
        rank, basis = compute_rank(draft, settings)
        created = NOW + number * apart
        due = draft.run_at or created + int(draft.delay * SECOND)
        return rank + {"zero": 0, "created": created, "due": due}[basis] // MILLISECOND, number

    return [draft.body for _, draft in sorted(enumerate(drafts), key=place)]


def test_fifo_serves_in_publish_order_whatever_the_priority() -> None:
    drafts = [Draft(body=b"%d" % n, priority=n % 7) for n in range(20)]
    assert order(QueueSettings(ordering="fifo"), drafts) == [draft.body for draft in drafts]


def test_the_higher_priority_is_served_first_and_equal_ones_by_id() -> None:
    drafts = [
        Draft(body=b"low", priority=1),
        Draft(body=b"high", priority=9),
        Draft(body=b"second high", priority=9),
        Draft(body=b"below zero", priority=-3),
    ]
    expected = [b"high", b"second high", b"low", b"below zero"]
    assert order(QueueSettings(), drafts) == expected


def test_scaiqueue_serves_by_tier_and_then_by_score() -> None:
    tiers = {b"low": 1000, b"critical": 4000, b"normal": 2000, b"normal plus": 2999}
    drafts = [Draft(body=body, priority=priority) for body, priority in tiers.items()]
    expected = [b"critical", b"normal plus", b"normal", b"low"]
    assert order(get_preset("scaiqueue"), drafts) == expected


def test_the_earliest_deadline_is_served_first_and_none_last() -> None:
    drafts = [
        Draft(body=b"none"),
        Draft(body=b"late", deadline=NOW + 2 * MILLISECOND),
        Draft(body=b"early", deadline=NOW + MILLISECOND),
        Draft(body=b"far", deadline=NEVER - 1),
    ]
    expected = [b"early", b"late", b"far", b"none"]
    assert order(QueueSettings(ordering="deadline"), drafts) == expected


def test_ready_time_serves_by_the_moment_it_is_due() -> None:
    drafts = [
        Draft(body=b"later", delay=5),
        Draft(body=b"at once"),
        Draft(body=b"between", run_at=NOW + SECOND),
        Draft(body=b"at once too", priority=9),
    ]
    expected = [b"at once", b"at once too", b"between", b"later"]
    assert order(get_preset("faststream"), drafts) == expected


@pytest.mark.parametrize(
    ("ordering", "draft", "expected"),
    [
        ("fifo", Draft(priority=9), (0, "zero")),
        ("priority", Draft(priority=9), (-9, "zero")),
        ("priority", Draft(priority=-9), (9, "zero")),
        ("deadline", Draft(deadline=NOW), (NOW // 1000, "zero")),
        ("deadline", Draft(), (NEVER, "zero")),
        ("ready_time", Draft(priority=9, delay=3), (0, "due")),
    ],
)
def test_a_rank_is_a_number_and_what_it_is_counted_from(
    ordering: str, draft: Draft, expected: tuple[int, str]
) -> None:
    assert compute_rank(draft, change(QueueSettings(), {"ordering": ordering})) == expected


def test_seconds_per_level_counts_from_the_moment_of_publishing() -> None:
    settings = QueueSettings(seconds_per_level=60)
    assert compute_rank(Draft(priority=2), settings) == (-120_000, "created")
    assert compute_rank(Draft(priority=-1), settings) == (60_000, "created")


@pytest.mark.parametrize(("apart", "first"), [(59, b"urgent"), (61, b"old")])
def test_with_seconds_per_level_a_message_is_overtaken_only_for_so_long(
    apart: int, first: bytes
) -> None:
    drafts = [Draft(body=b"old", priority=0), Draft(body=b"urgent", priority=1)]
    settings = QueueSettings(seconds_per_level=60)
    assert order(settings, drafts, apart * SECOND)[0] == first


def test_a_priority_out_of_range_is_ranked_as_the_nearest_in_range() -> None:
    assert compute_rank(Draft(priority=42), get_preset("codeq")) == (-9, "zero")
    assert clamp_priority(-5, get_preset("codeq")) == 0


SETTINGS = st.fixed_dictionaries(
    {"ordering": st.sampled_from(["fifo", "priority", "deadline", "ready_time"])},
    optional={"priority_min": st.just(-(2**31)), "priority_max": st.just(2**31 - 1)},
)
LEVELS = st.none() | st.floats(0, 2**52 / 1000 / 2**31)


@given(SETTINGS, LEVELS, st.integers(-(2**31), 2**31 - 1), st.none() | st.integers(0, NEVER - 1))
def test_every_rank_is_exact_in_a_double(
    changes: dict[str, Any], level: float | None, priority: int, deadline: int | None
) -> None:
    if changes["ordering"] == "priority":
        changes = changes | {"seconds_per_level": level}
    draft = Draft(priority=priority, deadline=deadline)
    rank, basis = compute_rank(draft, change(QueueSettings(), changes))
    placed = rank if basis == "zero" else rank + NOW // MILLISECOND
    assert isinstance(rank, int)
    assert float(placed) == placed
    assert abs(placed) < 2**53
