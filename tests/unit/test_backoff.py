"""The delay before the next run: its formula, its bound, its jitter."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.fields import MAX_RUNS
from penstock.model.settings import Backoff, get_preset
from penstock.rules.backoff import compute_delay
from tests.unit.leases import half

EVEN = Backoff(kind="constant", initial=10, jitter="none")


def delays(backoff: Backoff, count: int = 4) -> list[float]:
    """The delays after 1, 2, 3... runs, as if every draw were the largest."""
    return [compute_delay(used, backoff, lambda: 1.0) for used in range(1, count + 1)]


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Backoff(kind="none", initial=9, jitter="none"), [0, 0, 0, 0]),
        (EVEN, [10, 10, 10, 10]),
        (Backoff(kind="linear", initial=5, step=3, jitter="none"), [5, 8, 11, 14]),
        (Backoff(initial=1, factor=3, jitter="none"), [1, 3, 9, 27]),
        (Backoff(initial=1, factor=3, max=10, jitter="none"), [1, 3, 9, 10]),
        (Backoff(kind="linear", initial=5, step=3, max=9, jitter="none"), [5, 8, 9, 9]),
        (Backoff(kind="constant", initial=50, max=20, jitter="none"), [20, 20, 20, 20]),
        (Backoff(initial=0, factor=1000, jitter="none"), [0, 0, 0, 0]),
    ],
)
def test_the_delay_follows_its_formula_up_to_its_bound(
    backoff: Backoff, expected: list[float]
) -> None:
    assert delays(backoff) == expected


@pytest.mark.parametrize(
    ("name", "expected", "highest"),
    [
        ("default", [2, 4, 8, 16], 3600),  # 1 * 2^n
        ("scaiqueue", [2, 4, 8, 16], 900),
        ("relay", [0, 0, 0, 0], 0),
        ("codeq", [10, 20, 40, 80], 900),  # 5 * 2^n
        ("queuectl", [2, 4, 8, 16], 3600),  # base^n
    ],
)
def test_the_delays_of_a_preset_are_those_of_the_contract(
    name: str, expected: list[float], highest: float
) -> None:
    backoff = get_preset(name).backoff
    assert delays(backoff) == expected
    assert compute_delay(500, backoff, lambda: 1.0) == highest


def test_a_queuectl_base_of_3_gives_3_9_27() -> None:
    assert delays(Backoff(initial=3, factor=3, jitter="none"), 3) == [3, 9, 27]


def test_a_faststream_strategy_runs_at_0_1_and_2_seconds_more() -> None:
    assert delays(Backoff(initial=1, factor=2, jitter="none"), 2) == [1, 2]


JITTERS = {
    "none": (10, 10),
    "full": (0, 10),
    "equal": (5, 10),
    "add:0.3": (10, 13),
    "add:0": (10, 10),
    "sym:0.3": (7, 13),
    "sym:1": (0, 20),
}


@pytest.mark.parametrize(("jitter", "span"), JITTERS.items())
def test_ten_thousand_delays_lie_in_their_range_and_fill_it(
    jitter: str, span: tuple[float, float]
) -> None:
    low, high = span
    draw = random.Random(7).random
    backoff = Backoff(kind="constant", initial=10, jitter=jitter)
    drawn = [compute_delay(1, backoff, draw) for _ in range(10_000)]
    assert all(low <= delay <= high for delay in drawn)
    tenths = {min(9, int((delay - low) / (high - low) * 10)) for delay in drawn if high > low}
    assert tenths == (set(range(10)) if high > low else set())
    assert math.isclose(sum(drawn) / 10_000, (low + high) / 2, rel_tol=0.05)


def test_the_bound_comes_before_the_jitter() -> None:
    capped = Backoff(initial=100, max=10, jitter="add:0.5")
    assert compute_delay(1, capped, lambda: 1.0) == 15


def test_the_draw_is_random_unless_told_otherwise() -> None:
    assert len({compute_delay(1, Backoff(jitter="full")) for _ in range(20)}) == 20


NUMBERS = st.floats(0, 1e9)
BACKOFFS = st.builds(
    Backoff,
    kind=st.sampled_from(["none", "constant", "linear", "exponential"]),
    initial=NUMBERS,
    factor=st.floats(1, 1000),
    step=NUMBERS,
    max=NUMBERS,
    jitter=st.sampled_from([*JITTERS]),
)


@given(BACKOFFS, st.integers(1, MAX_RUNS), st.floats(0, 1, exclude_max=True))
def test_no_number_of_runs_overflows(backoff: Backoff, used: int, drawn: float) -> None:
    assert 0 <= compute_delay(used, backoff, lambda: drawn) <= 2 * backoff.max


@given(BACKOFFS, st.integers(1, MAX_RUNS - 1))
def test_a_later_delay_is_never_shorter(backoff: Backoff, used: int) -> None:
    earlier, later = (compute_delay(each, backoff, half) for each in (used, used + 1))
    assert later >= earlier


@pytest.mark.parametrize("factor", [1.01, 1.1, 1.5, 2, 1000])
def test_every_growing_delay_reaches_its_bound(factor: float) -> None:
    backoff = Backoff(initial=1, factor=factor, max=3600, jitter="none")
    needed = math.ceil(math.log(3600, factor)) + 1
    assert compute_delay(needed, backoff) == 3600
    assert compute_delay(needed - 1, backoff) < 3600
