"""Validates names, texts and numbers. Errors name the field."""

import re
from datetime import UTC, datetime, timedelta

from penstock.errors import InvalidInput
from penstock.model.fields import MAX_WORD_LENGTH, NAME_PATTERN

NAME = re.compile(NAME_PATTERN)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MAX_ERROR_BYTES = 8_192
MAX_TRACEBACK = 8_192


def check_name(kind: str, name: object) -> None:
    """Allows up to 128 letters, digits, dots, dashes and underscores."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InvalidInput(
            f"{kind} name {clip(name)} must be 1 to 128 letters, digits, '.', '-' or '_'"
        )


def check_text(field: str, value: str, longest: int, least: int = 1) -> None:
    if not isinstance(value, str):
        raise InvalidInput(f"{field} is {type(value).__name__}; it must be a string")
    if not least <= len(value) <= longest:
        raise InvalidInput(f"{field} {clip(value)} is empty or longer than {longest} characters")
    if "\x00" in value or (not value.isascii() and not is_encodable(value)):
        raise InvalidInput(f"{field} {clip(value)} contains a character that is not valid text")


def check_number(
    field: str,
    value: float | None,
    least: float,
    most: float,
    *,
    whole: bool = False,
    needed: bool = False,
) -> None:
    if value is None and not needed:
        return
    kinds = (int,) if whole else (int, float)
    if not isinstance(value, kinds) or isinstance(value, bool):
        raise InvalidInput(f"{field} is {clip(value)}; it must be a {'whole ' * whole}number")
    if not least <= value <= most:
        raise InvalidInput(f"{field} is {clip(value)}; it must be from {least} to {most}")


def check_moment(field: str, value: int, last: int) -> None:
    """Refuses moments after `last`, and writes them as people do."""
    if isinstance(value, int) and value > last:
        moment = EPOCH + timedelta(microseconds=last)
        raise InvalidInput(
            f"{field} is after {moment:%Y-%m-%dT%H:%M:%SZ}, the latest time that a store can keep"
        )
    check_number(field, value, 0, last, whole=True, needed=True)


def replace_surrogates(text: object) -> str:
    """Returns the text in a form that every store can keep."""
    kept = str(text)[:MAX_ERROR_BYTES].replace("\x00", "\ufffd")
    return kept if is_encodable(kept) else kept.encode(errors="replace").decode()


def clip_traceback(text: str) -> str:
    """Keeps the last lines, which name the error, within the size limit."""
    text = text.strip("\n")
    if len(text) > MAX_TRACEBACK:
        tail = text[-MAX_TRACEBACK + 4 :]
        text = "...\n" + (tail.partition("\n")[2] or tail)
    return replace_surrogates(text)


def is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_word(text: object) -> bool:
    """Checks a short text quickly. Others that are allowed need `check_text`."""
    return (
        type(text) is str
        and 0 < len(text) <= MAX_WORD_LENGTH
        and text.isascii()
        and text.isprintable()
    )


def clip(value: object) -> str:
    """Returns the repr of the value, short enough for an error message."""
    try:
        text = repr(value)
    except ValueError:
        # Python refuses to print an integer of thousands of digits.
        text = f"a huge {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
