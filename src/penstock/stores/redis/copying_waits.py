"""Encodes and decodes what messages wait for, as dumps and restores of Redis exchange it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock.model.copies import StoredResult, StoreDump, StoredWaits
from penstock.model.message import State
from penstock.model.waiting import Edge, StepRecord, StoredHold, StoredSignal
from penstock.stores.redis.codec import encode_id
from penstock.stores.redis.waiting import decode_signal, decode_step, make_hold

# Hexadecimal digits of an id or a fence.
ID_LENGTH = 14
decode = msgspec.json.Decoder().decode
encode = msgspec.json.Encoder().encode


def split(words: list[bytes]) -> Iterator[tuple[bytes, bytes, bytes]]:
    return zip(words[::3], words[1::3], words[2::3], strict=True)


def decode_waits(id: int, words: list[bytes]) -> StoredWaits:
    """Decodes the items of a message: kind, field and text of each."""
    holds: list[StoredHold] = []
    edges: list[Edge] = []
    steps: list[StepRecord] = []
    signals: list[StoredSignal] = []
    for kind, field, text in split(words):
        match kind:
            case b"hold":
                holds += [make_hold(id, place, fields) for place, fields in enumerate(decode(text))]
            case b"edge":
                edges.append(decode_edge(id, field, text))
            case b"step":
                steps.append(decode_step(text))
            case b"signal":
                signals.append(decode_signal(id, int(field, 16), text))
    return StoredWaits(tuple(holds), tuple(edges), tuple(steps), tuple(signals))


def decode_edge(id: int, field: bytes, text: bytes) -> Edge:
    number, awaited = int(field[:ID_LENGTH], 16), int(field[ID_LENGTH:], 16)
    return Edge(id, awaited, number, State(text.decode()) if text else None)


def decode_results(items: Iterable[list[bytes]]) -> dict[int, StoredResult]:
    """Decodes the results of removed messages."""
    found = {}
    for words in items:
        for kind, field, text in split(words):
            if kind == b"result":
                expires_at, _, body = text.partition(b" ")
                found[int(field, 16)] = StoredResult(body, int(expires_at))
    return found


def encode_page(page: StoreDump) -> list[Any]:
    """Encodes the number of items, and id, kind, field and text of each."""
    items = [
        (encode_id(life.message.id), *item)
        for life in page.lives
        if life.waits is not None
        for item in encode_waits(life.waits)
    ]
    items += [
        (encode_id(id), "result", result.expires_at, result.body)
        for id, result in page.results.items()
    ]
    return [len(items), *(word for item in items for word in item)]


def encode_waits(waits: StoredWaits) -> Iterator[tuple[Any, Any, Any]]:
    if waits.holds:
        yield "hold", "", encode([encode_stored_hold(hold, waits.edges) for hold in waits.holds])
    for edge in waits.edges:
        state = "" if edge.state is None else edge.state.value
        yield "edge", encode_id(edge.number) + encode_id(edge.awaited_id), state
    for step in waits.steps:
        yield "step", encode_step_field(step), encode_stored_step(step)
    for signal in waits.signals:
        yield "signal", encode_id(signal.id), encode_stored_signal(signal)


def encode_stored_hold(hold: StoredHold, edges: Iterable[Edge]) -> dict[str, Any]:
    """Encodes a hold with the counts of its edges."""
    fields = hold._asdict() | {"due_at": str(hold.due_at), "number": str(hold.number)}
    del fields["held_id"], fields["place"]
    counts = Counter(
        "open" if edge.state is None else "done" if edge.state is State.COMPLETED else "failed"
        for edge in edges
        if hold.kind == "after" and edge.number == hold.number
    )
    return fields | {name: counts[name] for name in ("open", "done", "failed")}


def encode_step_field(step: StepRecord) -> bytes:
    return b"%08x%s\0%s" % (step.position, step.name.encode(), step.key.encode())


def encode_stored_step(step: StepRecord) -> bytes:
    name, key = step.name.encode(), step.key.encode()
    due = b"-" if step.due_at is None else b"%d" % step.due_at
    return b"%s %d %d %s %d %d %d %d %s%s%s" % (
        step.kind.encode(), step.position, step.done, due, step.at, step.fence, len(name),
        len(key), name, key, step.body,
    )  # fmt: skip


def encode_stored_signal(signal: StoredSignal) -> bytes:
    name, key = signal.name.encode(), None if signal.key is None else signal.key.encode()
    length = b"-" if key is None else b"%d" % len(key)
    return b"%d %d %d %s %s%s%s" % (
        signal.consumed, signal.at, len(name), length, name, key or b"", signal.body,
    )  # fmt: skip
