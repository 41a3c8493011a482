"""Units: an entry and the copies that are written with it."""

from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.model.message import State

if TYPE_CHECKING:
    from penstock.model.store_types import Entry

# Placeholder for the id of the message that a copy belongs to, which is not known before the write.
# Stores replace it in the text of the meta, so it has as many digits as the longest id.
PARENT = 9_223_372_036_854_775_807
PARENT_TEXT = f'"parent_id":{PARENT}'


class Unit(Struct, frozen=True, kw_only=True):
    """Extends an entry: the entry and its copies are written together, or none of them is.

    If the entry is refused or a duplicate, no copy is written. A copy has no dedup key and no
    name, and one into a full queue is written as a dead letter, so that no copy is refused.
    """

    copies: tuple["Entry", ...] = ()
    # Ends the entry at once in this state, with this reason. It is never delivered.
    state: State | None = None
    reason: str | None = None
    # The queue that its dedup key and name belong to, unless it is the entry's own.
    addressed_to: int | None = None
    # Kind, name and version of documents. Unless they are stored, the entry answers STALE.
    expects: tuple[tuple[str, str, int], ...] = ()


# The code of an entry whose expected document has changed: the broker reads it and tries again.
STALE = "STALE"


def adopt(meta: str | None, parent_id: int) -> str | None:
    """Writes the id of the parent into the meta of a copy."""
    return meta and meta.replace(PARENT_TEXT, f'"parent_id":{parent_id}', 1)
