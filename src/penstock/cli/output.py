"""Prints results as tables or JSON, and formats times, durations and bodies."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

if TYPE_CHECKING:
    from penstock.model.message import Moment

PIPE_WIDTH = 200
MIN_CUT_COLUMN_WIDTH = 16
RESET, BOLD, RED, GREEN, YELLOW, CYAN = (f"\x1b[{code}m" for code in (0, 1, 31, 32, 33, 36))
COLORED_COLUMNS = ("", "STATE", "EVENT")
COLORS = {
    "ok": GREEN, "active": GREEN, "running": GREEN, "completed": GREEN, "complete": GREEN,
    "claimed": CYAN, "scheduled": YELLOW, "paused": YELLOW, "draining": YELLOW,
    "archived": YELLOW, "stopping": YELLOW, "nack": YELLOW, "reclaim": YELLOW, "WARN": RED,
    "dead": RED, "failed": RED, "gone": RED, "reject": RED, "fail": RED,
}  # fmt: skip


def print_json(value: Any, file: TextIO | None = None) -> None:
    print(msgspec.json.encode(value, enc_hook=str).decode(), file=file or sys.stdout)


def print_json_lines(values: Iterable[Any]) -> None:
    """Print one JSON object per line."""
    for value in values:
        print_json(value)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str) -> None:
    """Print an aligned table without its empty columns. Only the last column is cut."""
    listed = list(rows)
    if not listed:
        print(empty)
        return
    cells = [[to_one_line(value) for value in row] for row in listed]
    kept = [n for n in range(len(columns)) if any(row[n] for row in cells)]
    cells = [[row[n] for n in kept] for row in [[name.upper() for name in columns], *cells]]
    numbers = [all(is_number(row[n]) for row in listed) for n in kept]
    widths = [max(len(row[n]) for row in cells) for n in range(len(kept))]
    room = read_width() - sum(widths[:-1])
    room -= 2 * (len(widths) - 1)
    widths[-1] = min(widths[-1], max(room, MIN_CUT_COLUMN_WIDTH))
    color = use_color()
    for line, row in enumerate(cells):
        row[-1] = cut(row[-1], widths[-1])
        texts = [align(*cell) for cell in zip(row, widths, numbers, strict=True)]
        if color:
            texts = [paint(text, cells[0][n], line == 0) for n, text in enumerate(texts)]
        print("  ".join(texts).rstrip())


def read_width() -> int:
    """Return the columns of the terminal, as shutil does, without its slow import."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    try:
        return os.get_terminal_size().columns or PIPE_WIDTH
    except OSError:
        return PIPE_WIDTH


def is_number(value: Any) -> bool:
    """Check whether a cell is a number, or a truncated count such as 500+."""
    if isinstance(value, str):
        return value.endswith("+") and value[:-1].isdecimal()
    return isinstance(value, int | float | None)


def use_color() -> bool:
    """Check whether stdout is a terminal with colors. See https://no-color.org."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and sys.stdout.isatty()


def paint(text: str, column: str, heading: bool) -> str:
    """Color the heading, states and counts of dead letters."""
    word = text.strip()
    if heading:
        return f"{BOLD}{text}{RESET}"
    if column == "DEAD":
        return f"{RED}{text}{RESET}" if word not in ("", "0") else text
    color = COLORS.get(word.partition(",")[0]) if column in COLORED_COLUMNS else None
    return text if color is None else f"{color}{text}{RESET}"


def align(text: str, width: int, number: bool) -> str:
    return text.rjust(width) if number else text.ljust(width)


def to_one_line(value: Any) -> str:
    return "" if value is None else escape_control(" ".join(str(value).split()))


def escape_control(text: str) -> str:
    """Replace control characters, so that text of a job cannot control the terminal."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def print_details(pairs: Iterable[tuple[str, Any]]) -> None:
    """Print one name and value per line, without empty values."""
    shown = [(name, value) for name, value in pairs if value is not None and value != ""]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        lines = [escape_control(line) for line in str(value).splitlines()]
        if name == "state" and lines and use_color():
            word, space, rest = lines[0].partition(" ")
            lines[0] = paint(word, "STATE", heading=False) + space + rest
        print(f"{name:<{width}}  " + f"\n{'':<{width}}  ".join(lines))


def format_time(moment: Moment | None) -> str | None:
    """Format as ISO 8601 in UTC, to the microsecond."""
    if moment is None:
        return None
    seconds, rest = divmod(moment, 1_000_000)
    time = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
    return f"{time:%Y-%m-%dT%H:%M:%S.%f}Z"


def format_clock(moment: Moment | None) -> str | None:
    """Format in UTC, to the second."""
    if moment is None:
        return None
    return f"{datetime.fromtimestamp(moment // 1_000_000, UTC):%Y-%m-%d %H:%M:%S}"


def format_ago(moment: Moment | None, now: Moment) -> str | None:
    """Format the age of a moment, such as 12s, 3m, 2h or 5d. The future reads "in 12s"."""
    if moment is None:
        return None
    age = format_duration(abs(now - moment) / 1_000_000)
    return age if moment <= now else f"in {age}"


def format_duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def decode_body(body: bytes | None) -> Any:
    """Decode JSON or text. Other bodies become hex digits."""
    if body is None:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body.hex()


def format_body(body: bytes | None) -> str | None:
    """Format a body in one line."""
    if body is None:
        return None
    try:
        return to_one_line(body.decode())
    except UnicodeDecodeError:
        return body.hex()
