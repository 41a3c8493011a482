"""A change of documents, new messages and stored messages that is written as one step."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from penstock.model.documents import Document
from penstock.model.message import Moment, State
from penstock.model.store_types import AnswerKind, Entry, Published

# The code of an item that would replace a message of a workflow or one that has steps.
AWAITED = "AWAITED"


class ItemVerb(StrEnum):
    """An operation of a change on one stored message."""

    # Makes a dead message ready, or publishes a copy of a finished one.
    REDRIVE = "redrive"
    CANCEL = "cancel"
    PURGE = "purge"
    # Ends a message as cancelled and publishes `entry` in its place.
    REPLACE = "replace"
    # Changes the rank of a waiting message.
    RERANK = "rerank"


class Item(Struct, frozen=True, kw_only=True):
    """One operation on a message, which answers for itself.

    It changes nothing if the message has left the state in which it was seen, or if its history
    has a row above `as_of`.
    """

    verb: ItemVerb
    id: int
    queue_id: int
    seen: State
    # The rank of a ready message, if known: it saves a search for its ticket.
    seen_rank: int | None = None
    as_of: int | None = None
    # Written to history: why a message is replaced, and the bulk action, if any.
    reason: str = ""
    by: str = ""
    # The replacement, or the copy of a finished message.
    entry: Entry | None = None
    # The new rank.
    rank: int = 0


class ItemAnswer(Struct, frozen=True):
    """The outcome of an item: DONE, ALREADY, INVALID, MISSING, BUSY or CHANGED.

    `id` is the message that was published. A refused one has an error code instead.
    """

    kind: AnswerKind
    state: State | None = None
    id: int | None = None
    code: str | None = None

    def encode(self) -> str:
        words = (self.kind.value, self.state, self.id, self.code)
        return " ".join("-" if word is None else str(word) for word in words)


def decode_item_answer(text: str) -> ItemAnswer:
    kind, state, id, code = text.split(" ")
    return ItemAnswer(
        AnswerKind(kind),
        None if state == "-" else State(state),
        None if id == "-" else int(id),
        None if code == "-" else code,
    )


def encode_answers(answers: Iterable[ItemAnswer]) -> bytes:
    return "\n".join(answer.encode() for answer in answers).encode()


def decode_answers(body: bytes) -> list[ItemAnswer]:
    return [decode_item_answer(line) for line in body.decode().splitlines()]


class Horizon(Struct, frozen=True):
    """A moment of a store: its time, its highest message id and its highest history position."""

    now: Moment
    message: int
    history: int


class Change(Struct, frozen=True, kw_only=True):
    """Writes of one transaction, all or nothing.

    A guard is saved by its version. If the stored version of a guard or of an expected document
    differs, nothing is written.
    """

    guards: tuple[Document, ...] = ()
    # Kind, name and version that must be stored; version 0 must not exist. They are not written.
    expects: tuple[tuple[str, str, int], ...] = ()
    # Saved whatever their stored version is.
    saves: tuple[Document, ...] = ()
    # Kind and name.
    deletes: tuple[tuple[str, str], ...] = ()
    # Published together. If one is refused, nothing is written.
    entries: tuple[Entry, ...] = ()
    # Applied after the documents were saved, each on its own.
    items: tuple[Item, ...] = ()
    # Saved with the answers of the items, one per line, as its body.
    outcome: Document | None = None
    # Makes every process read queues, scopes and rules again.
    touch_directory: bool = False


class Changed(Struct, frozen=True):
    """The outcome of a change whose guards held.

    It was not written if an entry was refused; `published` says which and why.
    """

    published: tuple[Published, ...] = ()
    written: bool = True
    items: tuple[ItemAnswer, ...] = ()
    # Seconds for which the items held the lock that all writers of the store share, and for which
    # the commit did; 0 if the store has none, or nothing else was written since the last items.
    held: float = 0.0
    commit: float = 0.0
