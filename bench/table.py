"""Formats figures and targets as table lines."""

from typing import Literal

import msgspec
from msgspec import Struct

from bench.figures import Figure
from bench.peers.comparison import Result


class Target(Struct, frozen=True):
    """A bound on the ratio to the reference, or on the value."""

    of: Literal["ratio", "value"]
    bound: Literal[">=", "<="]
    limit: float

    def __str__(self) -> str:
        return f"{self.bound} {self.limit:g}{' x' if self.of == 'ratio' else ''}"

    def met_by(self, figure: Figure) -> bool:
        reached = (figure.value if self.of == "value" else figure.ratio) or 0.0
        return reached >= self.limit if self.bound == ">=" else reached <= self.limit


LINE = "{:<18}{:>9}  {:<6}{:>10}{:>7}  {:<17}{:<10}{}"
HEADER = LINE.format(
    "measure", "value", "unit", "reference", "ratio", "low to high", "must", "verdict"
)


def format_line(figure: Figure, target: Target | None) -> str:
    return LINE.format(
        figure.measure,
        format_number(figure.value),
        figure.unit,
        format_number(figure.reference),
        format_number(figure.ratio),
        ""
        if figure.low is None
        else f"{format_number(figure.low)} to {format_number(figure.high)}",
        "" if target is None else str(target),
        figure.note or judge_figure(figure, target),
    ).rstrip()


def judge_figure(figure: Figure, target: Target | None) -> str:
    if target is None:
        return ""
    return "met" if target.met_by(figure) else "missed"


def format_number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.2f}"


def format_json_line(store: str, figure: Figure) -> str:
    values = {
        "store": store,
        "measure": figure.measure,
        "value": figure.value,
        "reference": figure.reference,
        "ratio": figure.ratio,
        "unit": figure.unit,
        "low": figure.low,
        "high": figure.high,
        "note": figure.note,
    }
    return msgspec.json.encode(values).decode()


def format_peer_line(result: Result) -> str:
    return msgspec.json.encode(result).decode()
