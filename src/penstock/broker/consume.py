"""Claims, settles and extends messages."""

import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from msgspec.structs import replace

from penstock.broker.broadcast.claims import SubscriptionActivity
from penstock.broker.group_commit import GroupCommit
from penstock.broker.interfaces.broker import ClaimResult, Held, QueueSelector
from penstock.broker.queue_cache import QueueCache
from penstock.errors import Busy, Forbidden, InvalidInput, InvalidState, LockLost, NotFound
from penstock.model.fields import MAX_BATCH, MAX_LEASE_S, MAX_WORD_LENGTH, MIN_LEASE_S
from penstock.model.message import Leased, Settlement, State
from penstock.model.queue import CALLBACK, DEAD_LETTER, Queue
from penstock.model.store_types import (
    MISSING,
    Answer,
    AnswerKind,
    Claim,
    Claimed,
    Completion,
    Extension,
    Lease,
    Lock,
    Mark,
    Move,
)
from penstock.retry_policies import CLAIM, SETTLE, Retries
from penstock.rules import lifecycle, validation
from penstock.rules.settlements import check_seen, check_settlement
from penstock.store import Store

MAX_CLAIM_QUEUES = 16
MAX_TURNS = 1_000
MAX_WAIT_S = 30.0
MAX_NUMBER = 2**63
T = TypeVar("T")
MERGES = (None, "rotate", "rank")


class Consumer:
    """Claims, settles and extends messages of one tenant."""

    def __init__(
        self, store: Store, directory: QueueCache, commits: GroupCommit, tenant: str
    ) -> None:
        self.store = store
        self.directory = directory
        self.commits = commits
        self.tenant = tenant
        self.notes = SubscriptionActivity(store, directory)
        # Maps the queues of a claim to the index of the queue that was tried first last time.
        self.turns: dict[tuple[int, ...], int] = {}

    async def claim(
        self,
        *selectors: QueueSelector,
        consumer: str,
        limit: int = 1,
        lease: float | None = None,
        wait: float = 0.0,
        begins: bool = False,
        merge: str | None = None,
        scope: str = "default",
        dead_of: Collection[int] | None = None,
    ) -> ClaimResult:
        """Claims up to `limit` messages of queues, or (queue, types) pairs.

        A claim of dead letters takes those of the queue ids `dead_of`, or of the whole scope.
        """
        if not 1 <= len(selectors) <= MAX_CLAIM_QUEUES:
            raise InvalidInput(
                f"a claim accepts 1 to {MAX_CLAIM_QUEUES} queues; {len(selectors)} given"
            )
        validation.check_number("limit", limit, 1, MAX_BATCH, whole=True, needed=True)
        validation.check_number("lease", lease, MIN_LEASE_S, MAX_LEASE_S)
        validation.check_text("consumer", consumer, MAX_WORD_LENGTH)
        validation.check_number("wait", wait, 0.0, 2**31, needed=True)
        if merge not in MERGES:
            raise InvalidInput(f"merge is {validation.clip(merge)}; it must be rotate or rank")
        until = time.monotonic() + min(wait, MAX_WAIT_S)
        while True:
            since = self.store.wakes
            asks = await self._find_queues(selectors, scope)
            claims = self._plan_claims(asks, consumer, limit, lease, begins, merge)
            taken = await self._claim_all(claims, limit, dead_of)
            left = until - time.monotonic()
            if taken or left <= 0:
                return ClaimResult(taken, {queue.name: queue.serving_state for queue, _ in asks})
            serving = [queue.id for queue, _ in asks if queue.serves]
            await self.store.wait_ready(serving, min(left, 1.0), since)

    async def _find_queues(
        self, selectors: Sequence[QueueSelector], scope: str
    ) -> list[tuple[Queue, tuple[str, ...]]]:
        asks = [
            (await self.directory.get(self.tenant, scope, name), types)
            for name, types in map(split_selector, selectors)
        ]
        if self.directory.governed and self.directory.policy.broadcasts.expiring:
            await self.notes.note(queue for queue, _ in asks)
        return asks

    def _plan_claims(
        self,
        asks: list[tuple[Queue, tuple[str, ...]]],
        consumer: str,
        limit: int,
        lease: float | None,
        begins: bool,
        merge: str | None,
    ) -> list[tuple[Queue, Claim]]:
        """Plans one claim per queue in rotating order, or one claim by rank over all queues."""
        serving = [(queue, types) for queue, types in asks if queue.serves]
        if not serving:
            return []
        first, types = serving[0]
        if (merge or first.settings.merge) == "rank" and len(serving) > 1:
            if any(other != types for _, other in serving):
                raise InvalidInput("merge 'rank' needs the same types for all queues")
            ids = tuple(queue.id for queue, _ in serving)
            shortest = min(queue.settings.lease for queue, _ in serving)
            return [(first, Claim(ids, consumer, limit, lease or shortest, types, begins))]
        start = self._next_turn(tuple(queue.id for queue, _ in serving))
        return [
            (
                queue,
                Claim((queue.id,), consumer, limit, lease or queue.settings.lease, types, begins),
            )
            for queue, types in serving[start:] + serving[:start]
        ]

    def _next_turn(self, queue_ids: tuple[int, ...]) -> int:
        """Rotates which queue comes first, separately for each set of queues.

        With one shared counter, consumers in lockstep could always start at the same queue.
        """
        if len(self.turns) > MAX_TURNS:
            self.turns.clear()
        turn = self.turns[queue_ids] = (self.turns.get(queue_ids, 0) + 1) % len(queue_ids)
        return turn

    async def _claim_all(
        self, claims: list[tuple[Queue, Claim]], limit: int, dead_of: Collection[int] | None
    ) -> list[Leased]:
        taken: list[Leased] = []
        for queue, claim in claims:
            if len(taken) == limit:
                break
            taken += await self._claim_one(queue, claim, limit - len(taken), dead_of)
        return taken

    async def _claim_one(
        self, queue: Queue, claim: Claim, limit: int, dead_of: Collection[int] | None
    ) -> list[Leased]:
        claim = replace(claim, limit=limit)
        retries: Retries | None = None
        while True:
            if queue.name == DEAD_LETTER:
                claimed = await self._claim_dead(queue, claim, dead_of)
            else:
                claimed = await self.store.claim(claim)
            if not claimed.again:
                return claimed.messages
            retries = retries or CLAIM.begin()
            if not await retries.again():
                return []

    async def _claim_dead(
        self, dead_letter: Queue, claim: Claim, dead_of: Collection[int] | None
    ) -> Claimed:
        scope = dead_letter.scope
        ids = tuple(
            queue.id
            for queue in await self.directory.list_queues()
            if queue.scope.id == scope.id and (dead_of is None or queue.id in dead_of)
        )
        if not ids:
            return Claimed([])
        dead_claim = Claim(ids, claim.consumer, claim.limit, claim.lease, claim.types)
        return await self.store.claim_dead(dead_claim)

    async def complete(
        self, held: Held, result: bytes | None = None, *, seen: Sequence[str] = ()
    ) -> Answer:
        item = Completion(held.id, held.fence, result, tuple(seen))
        (answer,) = await self.complete_many((item,))
        return self._expect(answer, held)

    async def complete_many(self, items: Sequence[Completion]) -> list[Answer]:
        for item in items:
            result: object = item.result
            if result is not None and not isinstance(result, bytes):
                kind = type(result).__name__
                raise InvalidInput(f"result of message {item.id} is {kind}; it must be bytes")
            if item.seen:
                check_seen(item.seen)
        return await settle_each(items, self.commits.complete)

    async def settle(self, held: Held, settlement: Settlement) -> Answer:
        """Nacks, fails, rejects, releases, parks or cancels a claimed message."""
        (answer,) = await self.settle_many([(held, settlement)])
        return self._expect(answer, held)

    def _expect(self, answer: Answer, held: Held) -> Answer:
        if answer.kind is AnswerKind.LOST:
            self.directory.lost_locks.note(held.id, held.fence)
        return expect(answer, held.id)

    async def settle_many(self, items: Sequence[tuple[Held, Settlement]]) -> list[Answer]:
        """Settles many messages, with one answer per item."""
        checked = [(held, check_settlement(settlement)) for held, settlement in items]
        return await settle_each(checked, self._settle, itemgetter(0))

    async def _settle(self, items: Sequence[tuple[Held, Settlement]]) -> list[Answer]:
        """Settles, and again where a cancel request came between the read and the write."""
        answers = await self._settle_once(items)
        changed = find_changed(answers)
        retries = SETTLE.begin() if changed else None
        while retries is not None and changed and await retries.again():
            again = await self._settle_once([items[place] for place in changed])
            for place, answer in zip(changed, again, strict=True):
                answers[place] = answer
            changed = find_changed(answers)
        return answers

    async def _settle_once(self, items: Sequence[tuple[Held, Settlement]]) -> list[Answer]:
        leases = await self.commits.leases([Lock(held.id, held.fence) for held, _ in items])
        moves = [
            await self._move(lease, settlement)
            for lease, (_, settlement) in zip(leases, items, strict=True)
            if lease is not None
        ]
        settled = iter(add_delays(moves, leases, await self.commits.settle(moves) if moves else ()))
        gone = [item for item, lease in zip(items, leases, strict=True) if lease is None]
        explained = iter(await self._explain(gone))
        return [next(explained) if lease is None else next(settled) for lease in leases]

    async def _move(self, lease: Lease, settlement: Settlement) -> Move:
        queue = await self.directory.get_by_id(lease.queue_id)
        return lifecycle.settle(lease, settlement, queue.settings)

    async def _explain(self, items: Sequence[tuple[Held, Settlement]]) -> list[Answer]:
        if not items:
            return []
        locks = [Lock(held.id, held.fence) for held, _ in items]
        return await self.store.explain(locks, [settlement.verb for _, settlement in items])

    async def extend(self, held: Held, lease: float) -> Answer:
        """Extends a lease. The answer has its new end, and reports a cancel request."""
        (answer,) = await self.extend_many((Extension(held.id, held.fence, lease),))
        return self._expect(answer, held)

    async def extend_many(self, items: Sequence[Extension]) -> list[Answer]:
        for item in items:
            validation.check_number("lease", item.lease, MIN_LEASE_S, MAX_LEASE_S, needed=True)
        return await settle_each(items, self.commits.extend)

    async def begin(self, held: Held) -> Answer:
        """Records that the run of a suspect begins."""
        return await self._mark(Mark(held.id, held.fence, begin=True))

    async def progress(
        self, held: Held, percent: float | None = None, note: str | None = None
    ) -> Answer:
        validation.check_number("percent", percent, 0, 100)
        note = None if note is None else validation.replace_surrogates(note)
        return await self._mark(Mark(held.id, held.fence, False, percent, note))

    async def _mark(self, mark: Mark) -> Answer:
        (answer,) = await self.mark_many((mark,))
        return expect(answer, mark.id)

    async def mark_many(self, marks: Sequence[Mark]) -> list[Answer]:
        """Records that runs began, or their progress."""
        return await settle_each(marks, self.store.mark)


def find_changed(answers: Sequence[Answer]) -> list[int]:
    return [place for place, each in enumerate(answers) if each.kind is AnswerKind.CHANGED]


def return_item(item: Any) -> Any:
    return item


def is_possible_lock(lock: Held) -> bool:
    """True if a store could have issued the id and the fence."""
    return 0 < lock.id < MAX_NUMBER and 0 <= lock.fence < MAX_NUMBER


async def settle_each(
    items: Sequence[T],
    call: Callable[[Sequence[T]], Awaitable[list[Answer]]],
    lock: Callable[[T], Any] = return_item,
) -> list[Answer]:
    """Calls the store for possible locks, and answers MISSING for the others."""
    asked = [item for item in items if is_possible_lock(lock(item))]
    if len(asked) == len(items):
        return await call(asked) if asked else []
    answers = iter(await call(asked) if asked else ())
    return [next(answers) if is_possible_lock(lock(item)) else MISSING for item in items]


def add_delays(
    moves: Sequence[Move], leases: Sequence[Lease | None], answers: Sequence[Answer]
) -> list[Answer]:
    """Adds to each answer when a message that was returned may run again."""
    held = [lease for lease in leases if lease is not None]
    return [
        replace(answer, delay=move.delay, due_at=lease.now + int(move.delay * 1_000_000))
        if answer.kind is AnswerKind.DONE and move.state is State.SCHEDULED
        else answer
        for move, lease, answer in zip(moves, held, answers, strict=True)
    ]


def split_selector(selector: QueueSelector) -> tuple[str, tuple[str, ...]]:
    """Returns the queue name and its types. No types means any."""
    name, types = selector if isinstance(selector, tuple) else (selector, ())
    if not isinstance(name, str):
        raise InvalidInput(f"queue is {validation.clip(name)}; it must be a name")
    if name == CALLBACK:
        raise Forbidden(f"queue {name!r} is a system queue; clients cannot claim from it")
    for type_ in types:
        validation.check_text("type", type_, MAX_WORD_LENGTH)
    return name, tuple(types)


def expect(answer: Answer, id: int) -> Answer:
    """Returns a successful answer, and raises the matching error otherwise."""
    match answer.kind:
        case AnswerKind.DONE | AnswerKind.ALREADY:
            return answer
        case AnswerKind.LOST:
            raise LockLost(
                f"the lease on message {id} was lost; another consumer holds or settled it"
            )
        case AnswerKind.INVALID:
            state = answer.state or "unknown"
            raise InvalidState(f"message {id} is {state}, which does not allow this operation")
        case AnswerKind.MISSING:
            raise NotFound(f"no message with id {validation.clip(id)}")
        case AnswerKind.BUSY | AnswerKind.CHANGED:
            raise Busy(f"message {id} is locked by another transaction; try again")
