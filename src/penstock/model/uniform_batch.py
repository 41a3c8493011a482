"""Batches of entries that differ only in their bodies."""

from collections.abc import Iterator, Sequence
from typing import overload

from msgspec.structs import replace

from penstock.model.store_types import Entry


class UniformBatch(Sequence[Entry]):
    """The first of entries that differ only in their bodies, and the bodies of all.

    Code that knows only sequences gets entries from it.
    """

    __slots__ = ("bodies", "heading")

    def __init__(self, heading: Entry, bodies: list[bytes]) -> None:
        self.heading = heading
        self.bodies = bodies

    def __len__(self) -> int:
        return len(self.bodies)

    def __iter__(self) -> Iterator[Entry]:
        return (replace(self.heading, body=body) for body in self.bodies)

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> "UniformBatch": ...

    def __getitem__(self, index: int | slice) -> "Entry | UniformBatch":
        if isinstance(index, slice):
            return UniformBatch(self.heading, self.bodies[index])
        return replace(self.heading, body=self.bodies[index])


def join_entries(groups: Sequence[Sequence[Entry]]) -> Sequence[Entry]:
    """Joins the entries of several callers. Uniform batches with one heading stay a batch."""
    first = groups[0]
    if isinstance(first, UniformBatch):
        heading, bodies = first.heading, list(first.bodies)
        for group in groups[1:]:
            if not isinstance(group, UniformBatch) or not has_heading(group.heading, heading):
                break
            bodies += group.bodies
        else:
            return UniformBatch(heading, bodies)
    return [entry for group in groups for entry in group]


def has_heading(entry: Entry, heading: Entry) -> bool:
    """True if the entries differ at most in their bodies."""
    return replace(heading, body=entry.body) == entry


def are_plain(entries: Sequence[Entry]) -> bool:
    """True if no entry depends on stored rows."""
    if isinstance(entries, UniformBatch):
        return entries.heading.plain
    return entries[0].plain if len(entries) == 1 else all(entry.plain for entry in entries)


def find_uniform(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Returns the entries, as a UniformBatch if they differ only in their bodies."""
    if len(entries) < 2 or isinstance(entries, UniformBatch):
        return entries
    first = entries[0]
    if all(has_heading(entry, first) for entry in entries):
        return UniformBatch(first, [entry.body for entry in entries])
    return entries
