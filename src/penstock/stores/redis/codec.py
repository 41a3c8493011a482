"""Encodes and decodes stored values. Numbers that must sort as text are hexadecimal."""

from hashlib import blake2b, sha1
from typing import Any, NamedTuple

from penstock.model.message import (
    FINAL,
    PLAIN,
    FeedMessage,
    HistoryRow,
    Leased,
    Meta,
    Moment,
    State,
    StoredMessage,
    Verb,
)
from penstock.model.store_types import Answer, AnswerKind
from penstock.stores.sql.records import decode_meta_json

NONE = b"-"


def encode_id(id: int) -> bytes:
    return b"%014x" % id


def encode_queue_id(queue_id: int) -> bytes:
    return b"%08x" % queue_id


def make_field(queue_id: int, text: str) -> bytes:
    return b"%08x:%s" % (queue_id, text.encode())


def make_document_field(kind: str, name: str) -> bytes:
    return f"{kind} {name}".encode()


def compute_digest(queue_id: int, text: str) -> bytes:
    """Returns a fixed-length digest of a text."""
    return blake2b(make_field(queue_id, text), digest_size=20).hexdigest().encode()


def digest_correlation(correlation_id: str) -> bytes:
    """Digests a correlation id. Lua scripts make those of callbacks, and Lua has only SHA-1."""
    if correlation_id.startswith("callback-"):
        return sha1(correlation_id.encode(), usedforsecurity=False).hexdigest().encode()
    return compute_digest(0, correlation_id)


def decode_moment(text: bytes) -> Moment | None:
    return None if text in (b"", NONE) else int(text)


def parse_meta(text: bytes) -> Meta:
    return decode_meta_json(text) if text else PLAIN


class MessageHead(NamedTuple):
    """The fields of a message before its body."""

    created_at: Moment
    run_at: Moment | None
    expires_at: Moment | None
    queue_id: int
    priority: int
    type: str
    meta: Meta
    body: bytes


def decode_head(value: bytes) -> MessageHead:
    created, _, run_at, expires, queue, priority, types, metas, rest = value.split(b" ", 8)
    body = int(types)
    end = body + int(metas)
    return MessageHead(
        int(created), decode_moment(run_at), decode_moment(expires), int(queue, 16), int(priority),
        rest[:body].decode(), parse_meta(rest[body:end]), rest[end:],
    )  # fmt: skip


def decode_message(id: bytes, value: bytes) -> StoredMessage:
    head = decode_head(value)
    return StoredMessage(
        int(id, 16), head.queue_id, head.type, head.priority, head.created_at, head.body, head.meta
    )


def make_feed_message(id: bytes, value: bytes) -> FeedMessage:
    head = decode_head(value)
    return FeedMessage(
        int(id, 16), head.queue_id, head.type, head.priority, head.created_at, head.body, head.meta,
        head.run_at, head.expires_at,
    )  # fmt: skip


def decode_leased(id: bytes, said: bytes, value: bytes, fence: int, until: Moment) -> Leased:
    """Decodes a claimed message; `said` is empty for a plain first delivery."""
    created, _, _, _, queue, priority, types, metas, rest = value.split(b" ", 8)
    body = int(types)
    end = body + int(metas)
    attempts, deliveries, flags = 0, 1, 0
    if said:
        attempts, deliveries, flags, until = map(int, said.split(b" "))
    return Leased(
        int(id, 16), int(queue, 16), rest[:body].decode(), int(priority), int(created), rest[end:],
        PLAIN if end == body else decode_meta_json(rest[body:end]),
        fence, attempts, deliveries, until, flags,
    )  # fmt: skip


class LeasedTicket(NamedTuple):
    """A lease with the fields of its ticket."""

    fence: int
    claimed_at: Moment
    length: int
    queue_id: int
    attempts: int
    deliveries: int
    flags: int
    consumer: str


def decode_held(text: bytes) -> LeasedTicket:
    (
        fence, _, claimed_at, length, queue, _, attempts, deliveries, _, flags, _, _, _, types,
        rest,
    ) = text.split(b" ", 14)  # fmt: skip
    return LeasedTicket(
        int(fence), int(claimed_at), int(length), int(queue, 16), int(attempts), int(deliveries),
        int(flags), rest[int(types) :].decode(),
    )  # fmt: skip


class ScheduledTicket(NamedTuple):
    queue_id: int
    attempts: int
    deliveries: int


def decode_waiting(text: bytes) -> ScheduledTicket:
    queue, _, attempts, deliveries, _ = text.split(b" ", 4)
    return ScheduledTicket(int(queue, 16), int(attempts), int(deliveries))


class DeadTicket(NamedTuple):
    """A dead letter with its reason and error."""

    attempts: int
    deliveries: int
    reason: str | None
    error: str | None


def decode_dead(text: bytes) -> DeadTicket:
    (
        _, reasons, errors, _, _, attempts, deliveries, _, _, _, _, _, types, rest,
    ) = text.split(b" ", 13)  # fmt: skip
    reason, error, _ = split_fields(rest[int(types) :], reasons, errors)
    return DeadTicket(int(attempts), int(deliveries), reason, error)


def split_fields(text: bytes, *lengths: bytes) -> tuple[Any, ...]:
    """Splits off leading fields of given lengths; returns them and the rest."""
    found: list[str | bytes | None] = []
    for length in lengths:
        size = 0 if length == NONE else int(length)
        found.append(None if length == NONE else text[:size].decode())
        text = text[size:]
    return (*found, text)


def decode_history(position: bytes, row: bytes, traceback: bytes = b"") -> HistoryRow:
    verb, state, at, due, attempts, deliveries, reasons, errors, id, queue, rest = row.split(
        b" ", 10
    )
    reason, error, lease = split_fields(rest, reasons, errors)
    held = decode_held(lease) if lease else None
    led_to = State(state.decode())
    return HistoryRow(
        int(position), int(id, 16), held.queue_id if held else int(queue, 16),
        Verb(verb.decode()), led_to, reason, error,
        held.attempts + 1 if held and attempts == b"+" else int(attempts),
        held.deliveries if held and deliveries == NONE else int(deliveries),
        held.consumer if held else None, held.fence if held else None,
        held.claimed_at if held else None, int(at), decode_moment(due), led_to in FINAL,
        traceback.decode() or None,
    )  # fmt: skip


def decode_answer(text: bytes, state: State | None = None) -> Answer:
    """Decodes an answer; `state` is the state DONE led to."""
    kind, _, rest = text.decode().partition(" ")
    match kind:
        case "done":
            return Answer(AnswerKind.DONE, state)
        case "requested":
            return Answer(AnswerKind.DONE, State.CLAIMED, cancel_requested=True)
        case "changed":
            return Answer(AnswerKind.CHANGED, State.CLAIMED)
        case "already" | "invalid":
            return Answer(AnswerKind(kind), State(rest))
        case _:
            return Answer(AnswerKind(kind))
