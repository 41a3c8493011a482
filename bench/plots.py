"""Draws bar charts as SVG."""

from collections.abc import Sequence
from html import escape

from msgspec import Struct

LABEL, WIDTH, STEP, THICK = 170, 420, 26, 16
OURS, THEIRS = "#2563eb", "#9ca3af"


class Bar(Struct, frozen=True):
    label: str
    value: float
    ours: bool = False


def draw_bars(given: Sequence[Bar]) -> str:
    scale = WIDTH / max([bar.value for bar in given] + [1.0])
    height = STEP * len(given) + 10
    marks = [mark(place, bar, scale) for place, bar in enumerate(given)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + WIDTH + 60}" height="{height}"'
        f' font-family="sans-serif" font-size="12">\n{"".join(marks)}</svg>\n'
    )


def mark(place: int, bar: Bar, scale: float) -> str:
    top = STEP * place + 5
    middle = top + THICK - 4
    length = max(1.0, bar.value * scale)
    return (
        f'<text x="{LABEL - 8}" y="{middle}" text-anchor="end">{escape(bar.label)}</text>'
        f'<rect x="{LABEL}" y="{top}" width="{length:.1f}" height="{THICK}"'
        f' fill="{OURS if bar.ours else THEIRS}"/>'
        f'<text x="{LABEL + length + 6:.1f}" y="{middle}">{bar.value:.2f}</text>\n'
    )
