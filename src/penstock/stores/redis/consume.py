"""Verbs of producers and consumers."""

from collections.abc import Collection, Sequence
from typing import Any

from penstock.errors import InvalidInput
from penstock.model.changes import Change, Changed
from penstock.model.message import Flag, State, Verb
from penstock.model.store_types import (
    DONE,
    Answer,
    AnswerKind,
    Claim,
    Claimed,
    Completion,
    Entry,
    Extension,
    Lease,
    Lock,
    Mark,
    Move,
    Published,
    Sweep,
)
from penstock.model.waiting import StepSave, StepSaved
from penstock.rules.settlements import SEEN_WINDOW_S, make_seen_key
from penstock.stores.redis import publish
from penstock.stores.redis.codec import (
    decode_answer,
    decode_head,
    decode_held,
    decode_history,
    decode_leased,
    encode_id,
    encode_queue_id,
)
from penstock.stores.redis.database import RedisDatabase
from penstock.stores.redis.waiting import RedisWaiting

NO_CLAIM = Claimed([])


class RedisConsume:
    def __init__(self, database: RedisDatabase) -> None:
        self.database = database

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        if not entries:
            return []
        if atomic and any(entry.after for entry in entries):
            return await RedisWaiting(self.database).enqueue_holding(entries)
        how = "atomic" if atomic else "each"
        found = publish.decode_outcomes(
            await self.database.run("publish", how, *publish.make_arguments(entries))
        )
        return publish.refuse_unless_all(found) if atomic else found

    def enqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        raise self.no_transactions()

    async def aenqueue_on(
        self, connection: object, entries: Sequence[Entry], *, wake: bool = True
    ) -> list[Published]:
        raise self.no_transactions()

    def complete_on(self, connection: object, item: Completion) -> None:
        raise self.no_transactions()

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        raise self.no_transactions()

    def save_step_on(self, connection: object, item: StepSave) -> StepSaved:
        raise self.no_transactions()

    async def asave_step_on(self, connection: object, item: StepSave) -> StepSaved:
        raise self.no_transactions()

    def advance_on(self, connection: object, change: Change) -> Changed | None:
        raise self.no_transactions()

    async def aadvance_on(self, connection: object, change: Change) -> Changed | None:
        raise self.no_transactions()

    def in_transaction(self, connection: object) -> bool:
        return False

    def no_transactions(self) -> InvalidInput:
        return InvalidInput(
            f"{self.database.where}: a Redis store cannot join your transaction; use a unique key,"
            " or an SQL store"
        )

    async def claim(self, claim: Claim) -> Claimed:
        return decode_claimed(
            await self.database.run(
                "claim",
                claim.limit,
                publish.to_micros(claim.lease),
                claim.consumer,
                int(claim.begins),
                len(claim.types),
                *claim.types,
                *map(encode_queue_id, claim.queue_ids),
            )
        )

    async def claim_dead(self, claim: Claim) -> Claimed:
        return decode_claimed(
            await self.database.run(
                "claim_dead",
                claim.limit,
                publish.to_micros(claim.lease),
                claim.consumer,
                len(claim.types),
                *claim.types,
                *map(encode_queue_id, claim.queue_ids),
            )
        )

    async def complete(self, items: Sequence[Completion]) -> list[Answer]:
        if not items:
            return []
        words: list[Any] = [len(items)]
        for item in items:
            words += (encode_id(item.id), item.fence)
        for place, item in enumerate(items, 1):
            if item.result is not None:
                words += (place, item.result)
        if any(item.seen for item in items):
            words += encode_seen(items)
        reply = await self.database.run("complete", *words)
        if reply == b"done":
            return [DONE] * len(items)
        return [DONE if text == b"done" else decode_answer(text) for text in reply]

    async def extend(self, items: Sequence[Extension]) -> list[Answer]:
        words: list[Any] = []
        for item in items:
            words += (encode_id(item.id), item.fence, publish.to_micros(item.lease))
        return (
            [decode_extended(text) for text in await self.database.run("extend", *words)]
            if words
            else []
        )

    async def mark(self, items: Sequence[Mark]) -> list[Answer]:
        words: list[Any] = []
        for item in items:
            percent = "" if item.percent is None else repr(item.percent)
            note = "" if item.note is None else f"n{item.note}"
            words += (encode_id(item.id), item.fence, int(item.begin), percent, note)
        return (
            [decode_marked(text) for text in await self.database.run("mark", *words)]
            if words
            else []
        )

    async def leases(self, locks: Sequence[Lock]) -> list[Lease | None]:
        words: list[Any] = []
        for lock in locks:
            words += (encode_id(lock.id), lock.fence)
        if not words:
            return []
        now, found = await self.database.run("leases", *words)
        return [decode_lease(fields, int(now)) if fields else None for fields in found]

    async def expired_leases(self, limit: int) -> Sweep:
        now, found = await self.database.run("leases", "expired", limit)
        # An interrupted script left the time of a lease that it had removed.
        return Sweep(int(now), [decode_lease(fields, int(now)) for fields in found if fields])

    async def explain(self, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]:
        words: list[Any] = []
        for lock, verb in zip(locks, verbs, strict=True):
            words += (encode_id(lock.id), lock.fence, verb.value)
        return (
            [decode_answer(text) for text in await self.database.run("explain", *words)]
            if words
            else []
        )

    async def settle(self, moves: Sequence[Move]) -> list[Answer]:
        words: list[Any] = []
        for move in moves:
            words += (
                encode_id(move.id),
                move.fence,
                move.seen_flags,
                "" if move.expired_by is None else move.expired_by,
                move.verb.value,
                move.state.value,
                move.attempts,
                move.deliveries,
                decode_answers(move.reason),
                decode_answers(move.error),
                publish.to_micros(move.delay),
                int(move.rank_by_due),
                decode_answers(move.traceback),
            )
        if not words:
            return []
        reply = await self.database.run("settle", *words)
        return [decode_answer(text, move.state) for text, move in zip(reply, moves, strict=True)]

    async def has_ready(self, queue_id: int, types: Sequence[str] = ()) -> bool:
        if not types:
            return await self.any_ready([queue_id])
        return bool(await self.database.run("peek", encode_queue_id(queue_id), *types))

    async def any_ready(self, queue_ids: Collection[int]) -> bool:
        for queue_id in queue_ids:
            name = encode_queue_id(queue_id)
            bounds = (b"[" + name, b"(" + name + b"g", "LIMIT", 0, 1)
            if await self.database.ask("ZRANGEBYLEX", "ready", *bounds):
                return True
        return False


def decode_claimed(reply: list[Any]) -> Claimed:
    if not reply:
        return NO_CLAIM
    if reply == [b"again"]:
        return Claimed([], again=True)
    fence, lease_until, said, values = int(reply[0]), int(reply[1]), reply[2], reply[3]
    return Claimed(
        [
            decode_leased(id, words, value, fence, lease_until)
            for id, words, value in zip(said[::2], said[1::2], values, strict=True)
        ]
    )


def decode_extended(text: bytes) -> Answer:
    kind, _, rest = text.partition(b" ")
    if kind != b"extended":
        return decode_answer(text)
    moment, flags = map(int, rest.split(b" "))
    requested = bool(flags & Flag.CANCEL_REQUESTED)
    return Answer(AnswerKind.DONE, State.CLAIMED, moment, requested)


def decode_marked(text: bytes) -> Answer:
    return DONE if text == b"done" else decode_answer(text)


def decode_answers(text: str | None) -> bytes:
    """Decodes answers; a present text begins with a marker letter."""
    return b"" if text is None else b"t" + text.encode()


def decode_lease(fields: list[Any], now: int) -> Lease:
    id, text, lease_until, head, reason, rows = fields
    held = decode_held(text)
    parked, first = 0, held.claimed_at
    for row in rows:
        past = decode_history(b"0", row)
        if past.verb in (Verb.REDRIVE, Verb.WAIT):
            parked, first = 0, held.claimed_at
        elif past.claimed_at is not None:
            first = min(first, past.claimed_at)
        parked += past.verb is Verb.PARK
    return Lease(
        int(id, 16),
        held.fence,
        held.queue_id,
        held.attempts,
        held.deliveries,
        held.flags,
        held.claimed_at,
        int(lease_until),
        held.length / 1_000_000,
        now,
        decode_head(head).meta,
        first,
        parked,
        reason.decode() or None,
    )


def encode_seen(items: Sequence[Completion]) -> list[Any]:
    """Encodes how long keys are kept, and the keys that completions record."""
    words: list[Any] = [0, publish.to_micros(SEEN_WINDOW_S)]
    for place, item in enumerate(items, 1):
        for key in item.seen:
            words += (-place, make_seen_key(key))
    return words
