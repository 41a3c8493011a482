"""Runs bulk actions in steps: a batch of messages and the action's cursor are one change."""

import asyncio
from time import monotonic

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.bulk.reader import (
    IDS,
    BulkPage,
    BulkReader,
    BulkScope,
    make_name,
    make_reveals,
)
from penstock.broker.cancel import end_human_steps
from penstock.broker.queue_cache import QueueCache
from penstock.broker.search_sources import list_sources
from penstock.errors import Forbidden, PenstockError, StoreError
from penstock.model.bulk import BulkAction, BulkState, BulkVerb
from penstock.model.changes import Change, Item, ItemAnswer, decode_answers
from penstock.model.documents import AuditEntry, Document, acting
from penstock.model.message import Moment, Record, State
from penstock.model.queue import Queue
from penstock.model.search import Source
from penstock.model.settings import SHELL_TYPE
from penstock.model.store_types import AnswerKind
from penstock.rules.access import Access, Right
from penstock.rules.bulk import (
    MAX_REST_S,
    MISSING,
    Decision,
    ItemRefusal,
    Skip,
    add_skips,
    decide,
    end_pass,
    fit_batch,
    fold_answers,
)
from penstock.rules.filter_match import find_bounds
from penstock.rules.filter_parser import parse_filter
from penstock.rules.items import make_successor
from penstock.rules.masking import check_move
from penstock.store import Store

ACTION, ACTIVE, OUTCOME = "bulk", "bulk_active", "bulk_outcome"
KEPT_FOR_MICROS: Moment = 30 * 86_400_000_000
# How long another process waits before it takes over an action, beside the pauses by its rate.
OWNED_FOR_MICROS: Moment = 10_000_000
encode = msgspec.json.Encoder().encode
decode_action = msgspec.json.Decoder(BulkAction).decode


class StoredAction(Struct, frozen=True):
    """An action and the version of its document."""

    action: BulkAction
    version: int


def make_document(action: BulkAction, version: int | None) -> Document:
    # Ended actions are kept for a while; active ones until they end.
    until = {} if action.ended_at is None else {"expires_at": action.ended_at + KEPT_FOR_MICROS}
    name = make_name(action.tenant, action.id)
    return Document(kind=ACTION, name=name, body=encode(action), version=version, **until)


class BulkSteps:
    """Advances one action at a time. The guard on its document fences other processes."""

    def __init__(self, store: Store, directory: QueueCache) -> None:
        self.store = store
        self.directory = directory
        self.reader = BulkReader(store, directory)
        # Others may write until then, for as long as the last batch held them up.
        self.free_at = 0.0

    async def load(self, name: str) -> StoredAction | None:
        """Loads an action with the answers of its last batch counted."""
        found = await self.store.document(ACTION, name)
        if found is None:
            return None
        action = decode_action(found.body)
        if action.batch:
            outcome = await self.store.document(OUTCOME, name)
            answers = [] if outcome is None else decode_answers(outcome.body)
            action = fold_answers(action, answers)
        return StoredAction(action, found.version or 0)

    async def save(self, stored: StoredAction) -> StoredAction | None:
        """Saves an action by its version, and forgets what only an active one needs."""
        action, name = stored.action, make_name(stored.action.tenant, stored.action.id)
        kept = action.state.active
        change = Change(
            guards=(make_document(action, stored.version),),
            deletes=() if kept else ((ACTIVE, name), (IDS, name), (OUTCOME, name)),
        )
        done = await self.store.advance(change)
        return None if done is None else StoredAction(action, stored.version + 1)

    async def step(self, stored: StoredAction, owner: str) -> StoredAction | None:
        """Does one batch. Returns None if another process has changed the action meanwhile."""
        # Only the start and the end are audited, also in the process of the caller.
        token = acting.set(None)
        try:
            return await self._step(stored, owner)
        finally:
            acting.reset(token)

    async def _step(self, stored: StoredAction, owner: str) -> StoredAction | None:
        now = await self.store.now()
        until = now + OWNED_FOR_MICROS + compute_pause(stored.action)
        action = replace(stored.action, owner=owner, owned_until=until, updated_at=now)
        try:
            if action.pass_over:
                return await self.finish_pass(action, stored.version)
            scope = await self.reader.find_scope(action)
            action = self.reader.note_queues(action, scope)
            page = await self.reader.read(action, scope)
        except Forbidden as error:
            paused = replace(action, state=BulkState.PAUSED, reason=f"forbidden: {error}")
            return await self.save(StoredAction(paused, stored.version))
        except StoreError:
            raise
        except PenstockError as error:
            return await self.end(action, stored.version, BulkState.FAILED, str(error))
        decided = self.decide_all(action, scope, page)
        return await self.apply(action, stored.version, page, decided)

    async def apply(
        self, action: BulkAction, version: int, page: BulkPage, decided: list[tuple[int, Decision]]
    ) -> StoredAction | None:
        action = add_skips(action, decided)
        items = tuple(each for _, each in decided if isinstance(each, Item))
        if action.state is BulkState.COUNTING:
            action, items = add_counted(action, len(items)), ()
        action = replace(
            action,
            cursor=page.cursor,
            position=page.position,
            pass_over=page.over,
            batch=tuple(item.id for item in items),
        )
        if not items and page.over:
            return await self.finish_pass(action, version)
        answers = await self.write(action, version, items)
        if answers is None:
            return None
        await self.end_human_steps(action, page, answers)
        action = fold_answers(action, answers)
        if page.over:
            return await self.finish_pass(action, version + 1)
        return StoredAction(action, version + 1)

    async def write(
        self, action: BulkAction, version: int, items: tuple[Item, ...]
    ) -> tuple[ItemAnswer, ...] | None:
        name = make_name(action.tenant, action.id)
        outcome = Document(kind=OUTCOME, name=name, body=b"") if items else None
        guard = make_document(action, version)
        if (rest := self.free_at - monotonic()) > 0:
            await asyncio.sleep(rest)
        changed = await self.store.advance(Change(guards=(guard,), items=items, outcome=outcome))
        if changed is None:
            return None
        self.reader.batch = fit_batch(len(items), changed.held, changed.commit)
        self.free_at = monotonic() + min(changed.held + changed.commit, MAX_REST_S)
        return changed.items

    async def end_human_steps(
        self, action: BulkAction, page: BulkPage, answers: tuple[ItemAnswer, ...]
    ) -> None:
        """Ends what cancelled messages have asked people. Otherwise the reminder would, later."""
        if action.request.verb is not BulkVerb.CANCEL:
            return
        waited = {each.message.id for each in page.records if each.state is State.SCHEDULED}
        done = [
            id
            for id, answer in zip(action.batch, answers, strict=True)
            if answer.kind is AnswerKind.DONE and id in waited
        ]
        if done:
            await end_human_steps(self.store, self.directory, done)

    async def finish_pass(self, action: BulkAction, version: int) -> StoredAction | None:
        action = end_pass(action, stable=is_stable(action))
        if action.state is BulkState.DONE:
            return await self.end(action, version, BulkState.DONE)
        return await self.save(StoredAction(action, version))

    async def end(
        self, action: BulkAction, version: int, state: BulkState, reason: str | None = None
    ) -> StoredAction | None:
        """Ends an action with an entry in the audit log."""
        ended = replace(action, state=state, reason=reason, ended_at=action.updated_at)
        token = acting.set(make_audit_entry(ended))
        try:
            return await self.save(StoredAction(ended, version))
        finally:
            acting.reset(token)

    def decide_all(
        self, action: BulkAction, scope: BulkScope, page: BulkPage
    ) -> list[tuple[int, Decision]]:
        decided: list[tuple[int, Decision]] = [(id, Skip(MISSING)) for id in page.missing]
        decided += [
            (record.message.id, self.decide_one(action, scope, page, record))
            for record in page.records
        ]
        return decided

    def decide_one(
        self, action: BulkAction, scope: BulkScope, page: BulkPage, record: Record
    ) -> Decision:
        queue = scope.queues[record.message.queue_id]
        decision = decide(action, record, queue, scope.target)
        if not isinstance(decision, Item):
            return decision
        if scope.target is not None:
            try:
                self.check_target(record, queue, scope.target, scope.access)
            except PenstockError as error:
                return ItemRefusal(error.code)
        rank = page.ranks.get(decision.id) if record.state is State.READY else None
        return decision if rank is None else replace(decision, seen_rank=rank)

    def check_target(self, record: Record, queue: Queue, target: Queue, access: Access) -> None:
        """Raises unless the caller may move this message to the queue, and its body fits."""
        check_move(queue, target, make_reveals(access))
        if record.message.type == SHELL_TYPE:
            access.check(Right.SHELL, target.scope.name, target.name)
        self.directory.check_schemas(make_successor(record, target), target)


def compute_pause(action: BulkAction) -> Moment:
    """Returns the longest pause after a batch."""
    rate = action.request.rate
    return 0 if rate is None else int(max(1.0, 1 / rate) * 1_000_000)


def add_counted(action: BulkAction, count: int) -> BulkAction:
    """Counts what a dry run would do."""
    return replace(action, counts=replace(action.counts, done=action.counts.done + count))


def is_stable(action: BulkAction) -> bool:
    """True if the search reads messages by their ids, which never change."""
    if action.request.filter is None:
        return True
    node = parse_filter(action.request.filter, action.as_of.now)
    sources = list_sources(node, find_bounds(node))
    return not any(source.by_queue or source is Source.CLAIMED for source in sources)


def make_audit_entry(action: BulkAction) -> AuditEntry:
    counts = action.counts
    skipped = sum(counts.skipped.values())
    return AuditEntry(
        subject=action.actor.subject,
        tenant=action.tenant,
        scope=action.scope,
        verb=f"bulk.{action.state}",
        target=action.mark,
        detail=f"{action.title}: {counts.done} {'would be ' if action.request.dry_run else ''}done,"
        f" {skipped} skipped, {counts.failed} failed",
    )
