"""Parses durations such as 1h30m."""

import math
import re

from penstock.errors import InvalidInput

UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
DURATION = re.compile("".join(rf"(?:(?P<{unit}>\d+(?:\.\d+)?){unit})?" for unit in UNITS), re.ASCII)


def parse_seconds(duration: str | float) -> float:
    """Returns the seconds of "1h30m", "90s", "250ms", "1.5d" or a number of seconds."""
    if isinstance(duration, str):
        return parse_written(duration)
    if not math.isfinite(duration) or duration < 0:
        raise InvalidInput(f"duration {duration} must be 0 seconds or more")
    return float(duration)


def parse_written(text: str) -> float:
    match = DURATION.fullmatch(text)
    if match is not None and text:
        found = match.groupdict()
        return sum(float(found[unit]) * size for unit, size in UNITS.items() if found[unit])
    if re.fullmatch(r"\d+(?:\.\d+)?", text, re.ASCII):
        return float(text)
    raise InvalidInput(
        f"duration {text[:60]!r} is invalid; write it like 250ms, 90s, 5m, 1h30m or 2d"
    )
