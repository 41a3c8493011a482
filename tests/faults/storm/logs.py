"""Reads the logs of a storm's processes for errors that nobody expected."""

import re
from collections import Counter
from pathlib import Path

ERROR = re.compile(r"\[error\s*\]\s*(\w+)|\[warning\s*\]\s*(\w+)")
RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+)(?::|$)")
TRACEBACK = "Traceback (most recent call last):"
CAUSES = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
EVENT = re.compile(r"\[\w+\s*\]\s*(\w+)")
# Logged with the traceback of a handler, which may fail as it likes.
HANDLER_EVENT = "run_failed"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def troubles(directory: Path, expected: frozenset[str]) -> tuple[Counter[str], list[str]]:
    """How often which event was logged as an error or warning, and unexpected exceptions."""
    events: Counter[str] = Counter()
    surprises: list[str] = []
    for path in sorted(directory.glob("*.log")):
        lines = COLOUR.sub("", path.read_text(errors="replace")).splitlines()
        events.update(found[1] or found[2] for line in lines if (found := ERROR.search(line)))
        surprises += [f"{path.stem}: {text}" for text in find_raised(lines, expected)]
    return events, surprises


def find_raised(lines: list[str], expected: frozenset[str]) -> list[str]:
    """The last line of each traceback, if it was not to be expected."""
    found: list[str] = []
    inside, event = False, ""
    for line in lines:
        if logged := EVENT.search(line):
            event = logged[1]
        if line in CAUSES and found and event != HANDLER_EVENT:
            # What it was turned into is told next.
            found.pop()
        elif line.strip() == TRACEBACK:
            inside = event != HANDLER_EVENT
        elif inside and line and not line.startswith((" ", "\t")):
            inside = False
            found.append(line)
    return [line for line in found if not is_expected(line, expected)]


def is_expected(line: str, expected: frozenset[str]) -> bool:
    name = RAISED.match(line)
    return name is not None and name[1] in expected
