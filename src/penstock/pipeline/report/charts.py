"""Draws time series as self-contained SVG."""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TypeAlias

from msgspec import Struct

from penstock.pipeline.periods import HOUR, to_datetime

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 22, 26
TICKS = 4
# Seconds between time labels.
STEPS = (HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR, 48 * HOUR, 168 * HOUR)
MAX_TIME_LABELS = 8
# Without the style sheet, a line must not be filled.
BARE = 'fill="none" stroke="currentColor"'

Point: TypeAlias = tuple[float, float]
Writer: TypeAlias = Callable[[float | None], str]


class ChartLine(Struct, frozen=True):
    """A series of points. `style` is its CSS class, and None is a gap."""

    name: str
    style: str
    points: Sequence[tuple[int, float | None]]
    filled: bool = False


class ChartMark(Struct, frozen=True):
    """An event at a moment."""

    at: int
    severity: str
    text: str


class Scale(Struct, frozen=True):
    """Maps moments and values to coordinates."""

    begin: int
    end: int
    low: float
    high: float
    logarithmic: bool = False

    def x(self, moment: float) -> float:
        part = (moment - self.begin) / max(self.end - self.begin, 1)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        if self.logarithmic:
            value = max(value, self.low)
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def draw_chart(
    title: str,
    lines: Sequence[ChartLine],
    period: tuple[int, int],
    marks: Iterable[ChartMark] = (),
    write: Writer = str,
    *,
    logarithmic: bool = False,
) -> str:
    values = [value for line in lines for _, value in line.points if value is not None]
    if not values:
        return draw_empty(title)
    scale = make_log_scale(values, period) if logarithmic else make_linear_scale(values, period)
    parts = [
        *draw_axis(scale, write),
        *draw_times(scale),
        *(draw_mark(mark, scale) for mark in marks),
        *(drawn for line in lines for drawn in draw_line(line, scale, write)),
    ]
    return draw_figure(title, lines, parts)


def draw_figure(title: str, lines: Sequence[ChartLine], parts: Iterable[str]) -> str:
    keys = "".join(f'<span class="key {each.style}">{escape(each.name)}</span>' for each in lines)
    drawing = "\n".join(parts)
    return (
        f"<figure><figcaption><b>{escape(title)}</b>{keys}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"\n{drawing}\n</svg></figure>"
    )


def draw_empty(title: str) -> str:
    return draw_figure(
        title, (), [f'<text class="none" x="{WIDTH / 2}" y="{HEIGHT / 2}">no data</text>']
    )


def make_linear_scale(values: Sequence[float], period: tuple[int, int]) -> Scale:
    return Scale(*period, 0, round_up(max(values) or 1))


def make_log_scale(values: Sequence[float], period: tuple[int, int]) -> Scale:
    """Uses whole powers of ten around the values."""
    least = min(value for value in [*values, 1e9] if value > 0)
    low = 10 ** math.floor(math.log10(max(least, 1e-6)))
    high = 10 ** math.ceil(math.log10(max(*values, low * 1.001)))
    return Scale(*period, low, max(high, low * 10), True)


def round_up(value: float) -> float:
    """Rounds to a number that divides well by four."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(each * power for each in (1, 2, 4, 6, 8, 10) if each * power >= value * 0.999999)


def draw_axis(scale: Scale, write: Writer) -> Iterable[str]:
    for value in choose_levels(scale):
        y = scale.y(value)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        text = escape(write(value))
        yield f'<text class="level" x="{LEFT - 6}" y="{y + 4:.1f}">{text}</text>'


def choose_levels(scale: Scale) -> list[float]:
    if not scale.logarithmic:
        return [scale.low + (scale.high - scale.low) * n / TICKS for n in range(TICKS + 1)]
    powers = round(math.log10(scale.high / scale.low))
    step = math.ceil(powers / (TICKS + 1))
    return [scale.low * 10**n for n in range(0, powers + 1, step)]


def draw_times(scale: Scale) -> Iterable[str]:
    span = scale.end - scale.begin
    step = next((each for each in STEPS if span / each <= MAX_TIME_LABELS), STEPS[-1] * 4)
    for moment in range(-(-scale.begin // step) * step, scale.end + 1, step):
        form = "%H:%M" if step < 24 * HOUR and moment % (24 * HOUR) else "%d %b"
        x = scale.x(moment)
        yield f'<path class="tick" d="M{x:.1f} {HEIGHT - BOTTOM} v4"/>'
        # A label at the very end would be cut off.
        style = "time last" if x > WIDTH - 2 * RIGHT else "time"
        label = f"{to_datetime(moment):{form}}"
        yield f'<text class="{style}" x="{x:.1f}" y="{HEIGHT - 8}">{label}</text>'


def draw_line(line: ChartLine, scale: Scale, write: Writer) -> Iterable[str]:
    """Draws the pieces between gaps, single points as dots. Points show their value on hover."""
    for piece in split_at_gaps(line.points):
        places = [(scale.x(moment), scale.y(value)) for moment, value in piece]
        path = " L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        if line.filled:
            floor, first, last = HEIGHT - BOTTOM, places[0][0], places[-1][0]
            outline = f"M{first:.1f} {floor} L{path} L{last:.1f} {floor} Z"
            yield f'<path class="area {line.style}" opacity="0.16" d="{outline}"/>'
        yield f'<path class="line {line.style}" {BARE} d="M{path}"/>'
        if len(piece) <= 400:
            yield from draw_dots(line, piece, places, write)


def draw_dots(
    line: ChartLine, piece: Sequence[tuple[int, float]], places: Sequence[Point], write: Writer
) -> Iterable[str]:
    style, seen = ("dot", 1) if len(piece) == 1 else ("dot quiet", 0)
    for (moment, value), (x, y) in zip(piece, places, strict=True):
        text = escape(f"{to_datetime(moment):%d %b %H:%M} {line.name}: {write(value)}")
        place = f'cx="{x:.1f}" cy="{y:.1f}" r="3" opacity="{seen}"'
        yield f'<circle class="{style} {line.style}" {place}><title>{text}</title></circle>'


def split_at_gaps(points: Sequence[tuple[int, float | None]]) -> Iterable[list[tuple[int, float]]]:
    piece: list[tuple[int, float]] = []
    for moment, value in points:
        if value is None:
            if piece:
                yield piece
            piece = []
        else:
            piece.append((moment, value))
    if piece:
        yield piece


def draw_mark(mark: ChartMark, scale: Scale) -> str:
    x = scale.x(mark.at)
    return (
        f'<g class="mark {mark.severity}"><line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}"'
        f' y2="{HEIGHT - BOTTOM}"/><path d="M{x - 5:.1f} {TOP - 14} h10 l-5 8 z"/>'
        f"<title>{escape(mark.text)}</title></g>"
    )


def draw_sparkline(values: Sequence[float | None], style: str) -> str:
    """Draws a small line for a table cell."""
    known = [value or 0 for value in values]
    high = max(known, default=0) or 1
    step = 120 / max(len(known) - 1, 1)
    path = " L".join(
        f"{n * step:.1f} {22 - value / high * 20:.1f}" for n, value in enumerate(known)
    )
    line = f'<path class="line {style}" {BARE} d="M{path}"/>'
    return f'<svg class="spark" viewBox="0 0 120 24">{line}</svg>'


def draw_bar(part: float, style: str) -> str:
    return f'<span class="bar {style}" style="width:{max(part * 100, 0.5):.1f}%"></span>'
