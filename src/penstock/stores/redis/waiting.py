"""Verbs of waiting messages."""

from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.errors import ChildRefused, IdempotencyConflict
from penstock.model.message import MICROS_PER_SECOND, After, State, Verb
from penstock.model.store_types import Answer, AnswerKind, Entry, Published
from penstock.model.waiting import (
    MAX_RESUME_BATCH,
    Edge,
    HeldEnd,
    Hold,
    PastWait,
    ResumeResult,
    SignalAnswer,
    SignalDraft,
    StepKind,
    StepLog,
    StepRecord,
    StepSave,
    StepSaved,
    StoredHold,
    StoredSignal,
    Wait,
    WaitFacts,
)
from penstock.rules.live_events import KEPT_S
from penstock.rules.waiting import mark_awaited
from penstock.stores.redis import publish
from penstock.stores.redis.codec import decode_answer, decode_history, decode_moment, encode_id
from penstock.stores.redis.database import RedisDatabase
from penstock.stores.sql.holds import make_entry_holds
from penstock.stores.sql.steps import MAX_SIGNALS, RECENT_WAITS

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode


class RedisWaiting:
    def __init__(self, database: RedisDatabase) -> None:
        self.database = database

    async def enqueue_holding(self, entries: Sequence[Entry]) -> list[Published]:
        """Publishes all or none, with the holds of messages that wait for others."""
        found = await self.database.run("publish_held", *encode_holding(entries))
        return publish.refuse_unless_all(publish.decode_outcomes(found))

    async def wait(self, asked: Wait) -> Answer:
        steps = [*asked.steps, *filter(None, [asked.children_step])]
        afters = [hold.after for hold in asked.holds if hold.after is not None]
        reply = await self.database.run(
            "wait",
            encode_id(asked.id),
            asked.fence,
            asked.seen_flags,
            asked.attempts,
            asked.deliveries,
            asked.reason,
            encode(
                {
                    "own": [encode_hold(hold) for hold in asked.holds],
                    "children": list_entry_holds(asked.children),
                }
            ),
            int(asked.children_step is not None),
            len(steps),
            *(word for step in steps for word in encode_step(step)),
            *publish.make_arguments(mark_awaited(asked.children, afters)),
        )
        refuse_child(reply)
        if reply[0] != b"done":
            return decode_answer(reply[0])
        return Answer(AnswerKind.DONE, State.SCHEDULED, due_at=int(reply[1]))

    async def wait_facts(self, id: int, fence: int) -> WaitFacts:
        rows, steps = await self.database.run("wait_facts", encode_id(id))
        history = [decode_history(b"0", row) for row in rows]
        redrives = [place for place, row in enumerate(history) if row.verb is Verb.REDRIVE]
        since = redrives[-1] + 1 if redrives else 0
        redriven_at = history[since - 1].at if redrives else 0
        waits = [row for row in history if row.verb is Verb.WAIT]
        recent = [
            PastWait(row.at, row.claimed_at or row.at, row.due_at)
            for row in waits[: -RECENT_WAITS - 1 : -1]
        ]
        stored = [tuple(map(int, text.split(b" "))) for text in steps]
        return WaitFacts(
            sum(row.verb is Verb.WAIT for row in history[since:]),
            sum(at >= redriven_at for at, _ in stored),
            any(by == fence for _, by in stored),
            tuple(recent),
        )

    async def save_steps(self, items: Sequence[StepSave]) -> list[StepSaved]:
        return [await self.save_step(item) for item in items]

    async def save_step(self, item: StepSave) -> StepSaved:
        entry = [] if item.entry is None else publish.make_arguments([item.entry])
        consumes = b"" if item.consumes is None else encode_id(item.consumes)
        reply = await self.database.run(
            "save_step", encode_id(item.id), item.fence, *encode_step(item.step), consumes, *entry
        )
        refuse_child(reply)
        step = decode_step(reply[1]) if len(reply) > 1 else None
        return StepSaved(decode_answer(reply[0]).kind, step)

    async def steps(self, id: int) -> StepLog:
        now, found = await self.database.run("steps", encode_id(id))
        return StepLog([decode_step(text) for text in found], int(now))

    async def child_records(self, ids: Sequence[int]) -> list[StepRecord]:
        if not ids:
            return []
        found = await self.database.run("child_records", *map(encode_id, sorted(ids)))
        return [decode_step(text) for text in found]

    async def forget_steps(self, id: int, position: int) -> list[StepRecord]:
        found = await self.database.run("forget_steps", encode_id(id), position)
        return [decode_step(text) for text in found]

    async def signal(self, draft: SignalDraft) -> SignalAnswer:
        key = b"" if draft.key is None else b"k" + draft.key.encode()
        kind, number, state = await self.database.run(
            "signal", encode_id(draft.id), draft.name, key, draft.body, MAX_SIGNALS, draft.event,
            KEPT_S * MICROS_PER_SECOND,
        )  # fmt: skip
        id = int(number, 16) if number else 0
        known = State(state.decode()) if state else None
        if kind in (b"done", b"duplicate"):
            return SignalAnswer(id, kind == b"duplicate", None, known)
        code = kind.decode()
        return SignalAnswer(id, code == IdempotencyConflict.code, code, known)

    async def signals(self, id: int) -> list[StoredSignal]:
        found = await self.database.run("signals", encode_id(id))
        return [
            decode_signal(id, int(number, 16), text)
            for number, text in zip(found[::2], found[1::2], strict=True)
        ]

    async def resume_held(self, limit: int = MAX_RESUME_BATCH) -> ResumeResult:
        seen, resumed, now, next_at, more = await self.database.run("resume_held", limit)
        return ResumeResult(seen, resumed, int(now), decode_moment(next_at), bool(more))

    async def nudge_missed(self, after: int = 0, limit: int = MAX_RESUME_BATCH) -> int | None:
        """Does nothing: scripts run one after the other, so none is missed."""
        return None

    async def end_held(self, items: Sequence[HeldEnd]) -> list[Answer]:
        words: list[Any] = []
        for item in items:
            reason = b"" if item.reason is None else b"t" + item.reason.encode()
            result = b"" if item.result is None else b"t" + item.result
            words += (encode_id(item.id), item.verb.value, item.state.value, reason, result)
        reply = await self.database.run("end_held", *words) if words else []
        return [decode_answer(text, item.state) for text, item in zip(reply, items, strict=True)]

    async def holds(self, ids: Sequence[int]) -> list[StoredHold]:
        if not ids:
            return []
        found = await self.database.ask("HMGET", "hold", *map(encode_id, sorted(ids)))
        return [
            make_hold(id, place, fields)
            for id, text in zip(sorted(ids), found, strict=True)
            for place, fields in enumerate(decode(text) if text else ())
        ]

    async def awaited_results(self, id: int) -> dict[int, bytes]:
        found = await self.database.run("awaited_results", encode_id(id))
        return {
            int(awaited, 16): body for awaited, body in zip(found[::2], found[1::2], strict=True)
        }

    async def edges(self, id: int) -> list[Edge]:
        found = await self.database.run("edges", encode_id(id))
        return [
            Edge(
                id, int(field[14:], 16), int(field[:14], 16),
                State(state.decode()) if state else None,
            )
            for field, state in zip(found[::2], found[1::2], strict=True)
        ]  # fmt: skip


def encode_holding(entries: Sequence[Entry]) -> list[Any]:
    """Encodes the holds of entries that wait for others, empty without any, and the entries."""
    afters = [entry.after for entry in entries if entry.after is not None]
    if not afters:
        return [b"", *publish.make_arguments(entries)]
    holds = encode(list_entry_holds(entries))
    return [holds, *publish.make_arguments(mark_awaited(entries, afters))]


def list_entry_holds(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [
        {"place": place, "holds": [encode_hold(each) for each in make_entry_holds(entry)]}
        for place, entry in enumerate(entries)
        if entry.after is not None
    ]


def refuse_child(reply: list[Any]) -> None:
    if reply[0] == b"refused":
        raise ChildRefused.at(int(reply[1]), reply[2].decode())


def encode_hold(hold: Hold) -> dict[str, Any]:
    after = hold.after or After()
    fields: dict[str, Any] = {
        "kind": hold.kind,
        "name": hold.name,
        "policy": after.policy,
        "need": after.need,
        "on_dead": after.on_dead,
        "entries": after.entries,
        "ids": [encode_id(id).decode() for id in after.ids],
    }
    if hold.delay is not None:
        fields["delay"] = publish.to_micros(hold.delay)
    if hold.due_at is not None:
        fields["due_at"] = str(hold.due_at)
    return fields


def make_hold(id: int, place: int, fields: dict[str, Any]) -> StoredHold:
    return StoredHold(
        id, place, int(fields["number"]), int(fields["due_at"]), fields["kind"], fields["name"],
        fields["policy"], int(fields["need"]), fields["on_dead"],
    )  # fmt: skip


def encode_step(step: StepRecord) -> tuple[Any, ...]:
    due = "-" if step.due_at is None else step.due_at
    return (step.name, step.key, step.kind, step.position, int(step.done), due, step.body)


def decode_step(text: bytes) -> StepRecord:
    kind, position, done, due, at, fence, names, keys, rest = text.split(b" ", 8)
    start, end = int(names), int(names) + int(keys)
    return StepRecord(
        name=rest[:start].decode(), key=rest[start:end].decode(),
        kind=msgspec.convert(kind.decode(), StepKind), position=int(position), done=done == b"1",
        due_at=decode_moment(due), at=int(at), fence=int(fence), body=rest[end:],
    )  # fmt: skip


def decode_signal(message_id: int, id: int, text: bytes) -> StoredSignal:
    consumed, at, names, keys, rest = text.split(b" ", 4)
    start = int(names)
    end = start if keys == b"-" else start + int(keys)
    return StoredSignal(
        id=id, message_id=message_id, name=rest[:start].decode(),
        key=None if keys == b"-" else rest[start:end].decode(), at=int(at),
        consumed=consumed == b"1", body=rest[end:],
    )  # fmt: skip
