"""Publishes messages: validates drafts and enqueues them."""

from collections.abc import Sequence
from operator import attrgetter
from typing import TypeAlias

from penstock import tracing
from penstock.broker.group_commit import GroupCommit
from penstock.broker.queue_cache import QueueCache
from penstock.errors import (
    Busy,
    Forbidden,
    IdempotencyConflict,
    InvalidInput,
    NameTaken,
    PenstockError,
    QueueFull,
)
from penstock.model.message import Draft
from penstock.model.queue import Queue
from penstock.model.store_types import Entry, Published, UniformBatch
from penstock.rules import drafts, validation
from penstock.rules.drafts import make_common_entries, make_uniform_batch
from penstock.store import Store

REFUSALS: dict[str, type[PenstockError]] = {
    error.code: error for error in (QueueFull, NameTaken, IdempotencyConflict, Busy)
}
CODE = attrgetter("code")
Outcome: TypeAlias = Entry | Published | PenstockError


class Publisher:
    """Publishes drafts to the queues of one tenant."""

    def __init__(
        self, store: Store, directory: QueueCache, commits: GroupCommit, tenant: str
    ) -> None:
        self.store = store
        self.directory = directory
        self.commits = commits
        self.tenant = tenant

    async def publish(self, draft: Draft, *, scope: str = "default") -> Published:
        """Publishes a message. It is durable on return. A refused draft raises."""
        if tracing.is_enabled():
            with tracing.trace_publish([draft]) as (draft,):
                return await self._publish(draft, scope)
        return await self._publish(draft, scope)

    async def _publish(self, draft: Draft, scope: str) -> Published:
        queue = self._find_open_queue(draft.queue, scope)
        entry = admit(draft, queue or await self._open_queue(draft.queue, scope))
        (published,) = await self.commits.enqueue((entry,))
        return raise_if_refused(published, draft)

    async def publish_many(
        self, drafts: Sequence[Draft], *, atomic: bool = False, scope: str = "default"
    ) -> list[Published]:
        """Publishes in one durable step, with one answer per draft. `atomic` is all or nothing."""
        if tracing.is_enabled():
            with tracing.trace_publish(drafts) as drafts:
                return await self._publish_many(drafts, atomic, scope)
        return await self._publish_many(drafts, atomic, scope)

    async def _publish_many(
        self, drafts: Sequence[Draft], atomic: bool, scope: str
    ) -> list[Published]:
        if (batch := await self._admit_uniform(drafts, scope)) is not None:
            return await self.commits.enqueue(batch, atomic=atomic)
        names = {draft.queue for draft in drafts if isinstance(draft.queue, str)}
        queues = {name: await self._try_queue(name, scope) for name in names}
        outcomes = admit_each(drafts, queues)
        if atomic:
            raise_first(outcomes)
        entries = [outcome for outcome in outcomes if isinstance(outcome, Entry)]
        published = await self.commits.enqueue(entries, atomic=atomic) if entries else []
        if len(published) == len(drafts) and not any(map(CODE, published)):
            return published
        stored = iter(published)
        outcomes = [next(stored) if isinstance(o, Entry) else o for o in outcomes]
        answers = [answer(draft, o) for draft, o in zip(drafts, outcomes, strict=True)]
        if atomic:
            raise_refused(answers)
        return answers

    async def admit(self, draft: Draft, *, scope: str = "default") -> Entry:
        """Validates a draft for `publish_on`."""
        return admit(draft, await self._open_queue(draft.queue, scope))

    def publish_on(
        self, connection: object, draft: Draft, entry: Entry, *, wake: bool = True
    ) -> Published:
        """Publishes in the caller's open transaction."""
        (published,) = self.store.enqueue_on(connection, (entry,), wake=wake)
        return raise_if_refused(published, draft)

    async def apublish_on(
        self, connection: object, draft: Draft, entry: Entry, *, wake: bool = True
    ) -> Published:
        """Does the same on an async connection."""
        (published,) = await self.store.aenqueue_on(connection, (entry,), wake=wake)
        return raise_if_refused(published, draft)

    def _find_open_queue(self, name: object, scope: str) -> Queue | None:
        """Returns a cached queue that accepts messages, or None if `_open_queue` must decide."""
        if not isinstance(name, str) or name.startswith("_"):
            return None
        queue = self.directory.get_cached(self.tenant, scope, name)
        return None if queue is None or drafts.explain_refusal(queue) is not None else queue

    async def _open_queue(self, name: object, scope: str) -> Queue:
        if not isinstance(name, str):
            raise InvalidInput(f"queue is {validation.clip(name)}; it must be a name")
        if name.startswith("_"):
            text = validation.clip(name)
            raise Forbidden(f"queue {text}: names that begin with '_' are reserved")
        queue = await self.directory.get(self.tenant, scope, name)
        if (refusal := drafts.explain_refusal(queue)) is not None:
            raise refusal
        return queue

    async def _admit_uniform(self, drafts: Sequence[Draft], scope: str) -> UniformBatch | None:
        """Admits drafts that differ only in their bodies at once. Otherwise returns None."""
        if len(drafts) < 2 or not isinstance(drafts[0].queue, str):
            return None
        queue = await self._try_queue(drafts[0].queue, scope)
        return None if isinstance(queue, PenstockError) else make_uniform_batch(drafts, queue)

    async def _try_queue(self, name: str, scope: str) -> Queue | PenstockError:
        try:
            return self._find_open_queue(name, scope) or await self._open_queue(name, scope)
        except PenstockError as error:
            return error


def admit(draft: Draft, queue: Queue) -> Entry:
    return drafts.make_common_entry(draft, queue) or drafts.check_and_make_entry(draft, queue)


def admit_each(drafts: Sequence[Draft], queues: dict[str, Queue | PenstockError]) -> list[Outcome]:
    entries = make_common_entries(drafts, queues)
    return [entry or try_admit(draft, queues) for draft, entry in zip(drafts, entries, strict=True)]


def try_admit(draft: Draft, queues: dict[str, Queue | PenstockError]) -> Outcome:
    try:
        queue = queues[draft.queue]
    except (KeyError, TypeError):
        return InvalidInput(f"queue is {validation.clip(draft.queue)}; it must be a name")
    if isinstance(queue, PenstockError):
        return queue
    try:
        return admit(draft, queue)
    except PenstockError as error:
        return error


def raise_first(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, PenstockError):
            raise outcome


def raise_refused(answers: list[Published]) -> None:
    for published in answers:
        if published.code in REFUSALS:
            raise REFUSALS[published.code](published.error)


def answer(draft: Draft, outcome: Outcome) -> Published:
    if isinstance(outcome, PenstockError):
        return Published(0, code=outcome.code, error=str(outcome))
    assert isinstance(outcome, Published)
    if outcome.code is None:
        return outcome
    return Published(0, code=outcome.code, error=describe_refusal(outcome.code, draft))


def raise_if_refused(published: Published, draft: Draft) -> Published:
    if published.code is not None:
        raise REFUSALS[published.code](describe_refusal(published.code, draft))
    return published


def describe_refusal(code: str, draft: Draft) -> str:
    match code:
        case QueueFull.code:
            return f"queue {draft.queue!r} is full"
        case NameTaken.code:
            return f"queue {draft.queue!r} already has a message named {draft.name!r}"
        case IdempotencyConflict.code:
            key = draft.dedup.key if draft.dedup else ""
            return f"dedup key {key!r} was used in queue {draft.queue!r} with a different body"
        case Busy.code:
            return f"queue {draft.queue!r} is locked by another transaction; try again"
    return f"queue {draft.queue!r}: {code}"
