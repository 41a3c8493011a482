"""Publishes messages: validates drafts and enqueues them."""

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

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
from penstock.model import units
from penstock.model.broadcast import SEPARATOR
from penstock.model.message import Draft
from penstock.model.queue import Queue
from penstock.model.store_types import Entry, Published
from penstock.model.uniform_batch import UniformBatch
from penstock.model.units import STALE
from penstock.retry_policies import STALE_PUBLISH_ATTEMPTS
from penstock.rules import drafts, validation
from penstock.rules.drafts import make_common_entries, make_uniform_batch
from penstock.store import Store

if TYPE_CHECKING:
    from penstock.broker.governance import Governed

REFUSALS: dict[str, type[PenstockError]] = {
    STALE: Busy,
    **{error.code: error for error in (QueueFull, NameTaken, IdempotencyConflict, Busy)},
}
CODE = attrgetter("code")
NOT_PUBLISHED = "NOT_PUBLISHED"
Outcome: TypeAlias = Entry | Published | PenstockError
Queues: TypeAlias = dict[str, Queue | PenstockError]


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
        queue = queue or await self._open_queue(draft.queue, scope)
        if queue.governed:
            return await self._publish_one_governed(draft, queue)
        (published,) = await self.commits.enqueue((admit(draft, queue),))
        return raise_if_refused(published, draft)

    async def _publish_one_governed(self, draft: Draft, queue: Queue) -> Published:
        entry = self._admit_governed(draft, queue)
        (published,) = await self.commits.enqueue((entry,))
        retries = 0
        while published.code == STALE and retries < STALE_PUBLISH_ATTEMPTS:
            await self.directory.refresh()
            queue = await self._open_queue(draft.queue, queue.scope.name)
            entry = self._admit_governed(draft, queue)
            (published,) = await self.commits.enqueue((entry,))
            retries += 1
        return self._add_route(raise_if_refused(published, draft), entry)

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
        if any(isinstance(queue, Queue) and queue.governed for queue in queues.values()):
            return await self._publish_until_fresh(drafts, queues, atomic, scope)
        return await self._enqueue(drafts, admit_each(drafts, queues), atomic)

    async def _publish_until_fresh(
        self, drafts: Sequence[Draft], queues: Queues, atomic: bool, scope: str
    ) -> list[Published]:
        """Publishes drafts again that were copied to subscriptions that have changed since."""
        answers = await self._publish_governed(drafts, queues, atomic)
        for _ in range(STALE_PUBLISH_ATTEMPTS):
            stale = [at for at, each in enumerate(answers) if each.code in (STALE, NOT_PUBLISHED)]
            if not any(answers[at].code == STALE for at in stale):
                return answers
            await self.directory.refresh()
            queues = {name: await self._try_queue(name, scope) for name in queues}
            again = await self._publish_governed([drafts[at] for at in stale], queues, atomic)
            for at, answer in zip(stale, again, strict=True):
                answers[at] = answer
        return answers

    async def _publish_governed(
        self, drafts: Sequence[Draft], queues: Queues, atomic: bool
    ) -> list[Published]:
        governed = self._govern(drafts, queues)
        fit = [each for each in governed if isinstance(each, Draft)]
        if len(fit) == len(drafts) and (batch := make_governed_batch(fit, queues)) is not None:
            return await self.commits.enqueue(batch, atomic=atomic)
        admitted = iter(admit_each(fit, queues))
        outcomes = [next(admitted) if isinstance(each, Draft) else each for each in governed]
        return await self._enqueue(drafts, outcomes, atomic)

    async def _enqueue(
        self, drafts: Sequence[Draft], outcomes: list[Outcome], atomic: bool
    ) -> list[Published]:
        """Writes the admitted entries, and answers for every draft."""
        if atomic:
            raise_first(outcomes)
        entries = [outcome for outcome in outcomes if isinstance(outcome, Entry)]
        published = await self.commits.enqueue(entries, atomic=atomic) if entries else []
        if any(entry.unit is not None for entry in entries):
            published = list(map(self._add_route, published, entries))
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
        entry = await self._admit_now(draft, scope)
        if entry.unit is not None and entry.unit.expects:
            # The caller's transaction may have an old snapshot, in which old subscriptions stand.
            version = self.directory.version
            await self.directory.refresh()
            if self.directory.version != version:
                entry = await self._admit_now(draft, scope)
        return entry

    async def _admit_now(self, draft: Draft, scope: str) -> Entry:
        queue = await self._open_queue(draft.queue, scope)
        return self._admit_governed(draft, queue) if queue.governed else admit(draft, queue)

    def _admit_governed(self, draft: Draft, queue: Queue) -> Entry:
        (outcome,) = self._govern((draft,), {draft.queue: queue})
        if isinstance(outcome, PenstockError):
            raise outcome
        return admit(outcome, queue) if isinstance(outcome, Draft) else outcome

    def _govern(self, drafts: Sequence[Draft], queues: Queues) -> "list[Governed]":
        """Governs the drafts of governed queues, and leaves the others as they are."""
        from penstock.broker.governance import govern

        governed: list[Governed] = list(drafts)
        for name, queue in queues.items():
            if isinstance(queue, Queue) and queue.governed:
                places = [at for at, draft in enumerate(drafts) if draft.queue == name]
                outcomes = govern([drafts[at] for at in places], queue, self.directory.policy)
                for at, outcome in zip(places, outcomes, strict=True):
                    governed[at] = outcome
        return governed

    def _add_route(self, published: Published, entry: Entry) -> Published:
        """Adds the queues that rules sent the draft to."""
        if entry.unit is None or published.duplicate or published.code is not None:
            return published
        from penstock.broker.routing.apply import list_routed

        return replace(published, routed=list_routed(entry, self.directory.by_id))

    def publish_on(
        self, connection: object, draft: Draft, entry: Entry, *, wake: bool = True
    ) -> Published:
        """Publishes in the caller's open transaction."""
        (published,) = self.store.enqueue_on(connection, (entry,), wake=wake)
        return self._add_route(raise_if_refused(published, draft), entry)

    async def apublish_on(
        self, connection: object, draft: Draft, entry: Entry, *, wake: bool = True
    ) -> Published:
        """Does the same on an async connection."""
        (published,) = await self.store.aenqueue_on(connection, (entry,), wake=wake)
        return self._add_route(raise_if_refused(published, draft), entry)

    def _find_open_queue(self, name: object, scope: str) -> Queue | None:
        """Returns a cached queue that accepts messages, or None if `_open_queue` must decide."""
        if not isinstance(name, str) or name.startswith("_") or SEPARATOR in name:
            return None
        queue = self.directory.get_cached(self.tenant, scope, name)
        return None if queue is None or drafts.explain_refusal(queue) is not None else queue

    async def _open_queue(self, name: object, scope: str) -> Queue:
        if not isinstance(name, str):
            raise InvalidInput(f"queue is {validation.clip(name)}; it must be a name")
        refuse_reserved(name)
        queue = await self.directory.get(self.tenant, scope, name)
        if (refusal := drafts.explain_refusal(queue)) is not None:
            raise refusal
        return queue

    async def _admit_uniform(self, drafts: Sequence[Draft], scope: str) -> UniformBatch | None:
        """Admits drafts that differ only in their bodies at once. Otherwise, and for a governed
        queue, returns None."""
        if len(drafts) < 2 or not isinstance(drafts[0].queue, str):
            return None
        queue = await self._try_queue(drafts[0].queue, scope)
        if isinstance(queue, PenstockError) or queue.governed:
            return None
        return make_uniform_batch(drafts, queue)

    async def _try_queue(self, name: str, scope: str) -> Queue | PenstockError:
        try:
            return self._find_open_queue(name, scope) or await self._open_queue(name, scope)
        except PenstockError as error:
            return error


def refuse_reserved(name: str) -> None:
    if name.startswith("_"):
        raise Forbidden(f"queue {validation.clip(name)}: names that begin with '_' are reserved")
    if SEPARATOR in name:
        parent = name.partition(SEPARATOR)[0]
        raise Forbidden(
            f"queue {validation.clip(name)} belongs to a subscription; publish to {parent!r}"
        )


def admit(draft: Draft, queue: Queue) -> Entry:
    return drafts.make_common_entry(draft, queue) or drafts.check_and_make_entry(draft, queue)


def make_governed_batch(drafts: Sequence[Draft], queues: Queues) -> UniformBatch | None:
    """Makes the batch of drafts of one queue that differ only in their bodies."""
    if len(queues) != 1 or len(drafts) < 2:
        return None
    (queue,) = queues.values()
    return make_uniform_batch(drafts, queue) if isinstance(queue, Queue) else None


def admit_each(drafts: Sequence[Draft], queues: Queues) -> list[Outcome]:
    entries = make_common_entries(drafts, queues)
    return [entry or try_admit(draft, queues) for draft, entry in zip(drafts, entries, strict=True)]


def try_admit(draft: Draft, queues: Queues) -> Outcome:
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
        if published.code in REFUSALS and published.code != STALE:
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
        case units.STALE:
            return f"the subscriptions of queue {draft.queue!r} changed meanwhile; try again"
        case Busy.code:
            return f"queue {draft.queue!r} is locked by another transaction; try again"
    return f"queue {draft.queue!r}: {code}"
