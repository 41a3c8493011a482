"""Parses the times that users type."""

from datetime import date, datetime, time, timedelta

from penstock.errors import InvalidInput
from penstock.model.message import Moment

FORMATS = "2030-01-01T03:00, 2030-01-01, tomorrow, or tomorrow 09:00"


def parse_time(text: str, now: datetime | None = None) -> datetime:
    """Parse a time or a date. Without a UTC offset it is local, without a time it is midnight."""
    day, _, rest = text.strip().partition(" ")
    try:
        if day.lower() in ("today", "tomorrow"):
            base = (now or datetime.now()).date()
            base += timedelta(days=day.lower() == "tomorrow")
            return datetime.combine(base, time.fromisoformat(rest) if rest else time())
        if len(text) == len("2030-01-01"):
            return datetime.combine(date.fromisoformat(text), time())
        return datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"time {text!r} is invalid; write it like {FORMATS}") from None


def to_moment(given: datetime) -> Moment:
    """Convert a time. Without a UTC offset it is local time."""
    try:
        return int(given.astimezone().timestamp() * 1_000_000)
    except (OverflowError, ValueError):
        raise InvalidInput(f"run_at {given} is out of range") from None
