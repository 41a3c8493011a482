"""One change of one line, and where in the source it goes."""

import re

from msgspec import Struct

SOURCE = "src/penstock/"
# Stores whose tests take longer to begin.
SERVERS = ("postgres", "mariadb", "redis")
# Where a statement, function or class begins, and thereby the one before it ends.
BEGINNING = re.compile(
    r"^(?:-- name: (\w+)|\s*(?:async )?def (\w+)|class (\w+)|local function (\w+))", re.MULTILINE
)


class NotApplicable(Exception):
    """The source has moved on: the line to change is not there, or not there alone."""


class Mutation(Struct, frozen=True):
    """`old` becomes `new` in the statement, function or class named `place`, or in all of it.

    `hint` names a test file, or a test, that should notice; it is tried before all the others.
    """

    name: str
    file: str
    place: str
    old: str
    new: str
    hint: str

    @property
    def path(self) -> str:
        return SOURCE + self.file

    @property
    def store(self) -> str | None:
        """The store whose code it is in; None if it is in the code of all."""
        match = re.match(r"stores/(?!sql/)(\w+)/", self.file)
        return match and match[1]

    @property
    def chosen(self) -> str:
        """The tests that may notice: of what all stores share, a file's notice sooner."""
        return self.store if self.store in SERVERS else f"not {' and not '.join(SERVERS)}"

    def applied(self, text: str) -> str:
        """The text of its file with the line changed."""
        start, end = self._span(text)
        count = text.count(self.old, start, end)
        if count != 1:
            raise NotApplicable(f"{self.name}: {self.old!r} is {count} times in {self.place}")
        at = text.index(self.old, start, end)
        return text[:at] + self.new + text[at + len(self.old) :]

    def _span(self, text: str) -> tuple[int, int]:
        if not self.place:
            return 0, len(text)
        found = list(BEGINNING.finditer(text))
        ends = [*(match.start() for match in found[1:]), len(text)]
        spans = [
            (match.start(), end)
            for match, end in zip(found, ends, strict=True)
            if self.place in match.groups()
        ]
        if len(spans) != 1:
            raise NotApplicable(f"{self.name}: {self.file} has {len(spans)} places {self.place!r}")
        return spans[0]


def conformance(hint: str) -> str:
    """The path of a conformance test by its topic, with a test of it after `::` or not."""
    topic, mark, test = hint.partition("::")
    return f"tests/conformance/test_{topic}.py{mark}{test}"
