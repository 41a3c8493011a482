"""The examples of a refund that a person approves, and of a nightly fan-out and fan-in."""

import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.anyio
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("choice", "answer", "paid"),
    [
        ("approve", "paid 650", ["pay back 650 as refund-1"]),
        ("reject", "refused: reject", []),
        (None, "refused: expired", []),
    ],
)
async def test_a_refund_is_paid_once_and_only_if_a_person_approves(
    choice: str | None, answer: str, paid: list[str]
) -> None:
    example = runpy.run_path(str(EXAMPLES / "refund.py"))
    assert await example["main"](choice) == answer
    assert example["effects"] == ["find charge of 7", *paid]


async def test_a_night_started_twice_counts_each_shop_once() -> None:
    example = runpy.run_path(str(EXAMPLES / "nightly.py"))
    assert await example["main"]() == {"shops": 3, "total": 245}
    assert sorted(example["counted"]) == ["berlin", "lisbon", "oslo"]
