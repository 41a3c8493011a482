"""Lengths of time as people write them."""

import pytest

from penstock.errors import InvalidInput
from penstock.rules.durations import parse_seconds


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("250ms", 0.25),
        ("90s", 90.0),
        ("5m", 300.0),
        ("1h", 3_600.0),
        ("1h30m", 5_400.0),
        ("2d", 172_800.0),
        ("1d2h3m4s5ms", 93_784.005),
        ("1.5h", 5_400.0),
        ("12", 12.0),
        ("0.5", 0.5),
        (90, 90.0),
        (0.25, 0.25),
    ],
)
def test_a_duration_is_read_in_seconds(written: str | float, expected: float) -> None:
    assert parse_seconds(written) == pytest.approx(expected)


@pytest.mark.parametrize(
    "written",
    ["", "h", "1x", "-1s", "1m1h", "1h 30m", "NaN", "1e3", "٣s", -1, float("nan"), float("inf")],
)
def test_what_is_not_a_duration_is_refused(written: str | float) -> None:
    with pytest.raises(InvalidInput, match="duration"):
        parse_seconds(written)
