"""Matches globs without regular expressions, so that no pattern can be slow."""

from collections.abc import Sequence


def match_parts(parts: Sequence[str], text: str) -> bool:
    """Matches literal parts with any text between them. One part must equal the text."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return text == first
    end = len(text) - len(last)
    start = len(first)
    if start > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in parts[1:-1]:
        found = text.find(part, start, end)
        if found < 0:
            return False
        start = found + len(part)
    return True


def match_glob(pattern: str, text: str) -> bool:
    """Matches `*` (any text) and `?` (one character).

    After a mismatch only the last star is tried again, one character further on.
    """
    at = place = 0
    star, restart = -1, 0
    while place < len(text):
        if at < len(pattern) and pattern[at] == "*":
            star, restart = at, place
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", text[place]):
            at += 1
            place += 1
        elif star >= 0:
            restart += 1
            at, place = star + 1, restart
        else:
            return False
    return pattern[at:].strip("*") == ""
