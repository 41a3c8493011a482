"""Starts, shows and controls bulk actions of one tenant."""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from penstock.broker.bulk.reader import IDS, make_name
from penstock.broker.bulk.steps import (
    ACTION,
    ACTIVE,
    BulkSteps,
    StoredAction,
    add_counted,
    encode,
    make_document,
)
from penstock.broker.documents import list_documents
from penstock.broker.queue_cache import QueueCache
from penstock.broker.search import MAX_SCANNED
from penstock.errors import Busy, InvalidInput, InvalidState, NotFound, TooManyBulks
from penstock.model.bulk import BulkAction, BulkActor, BulkRequest, BulkState, BulkVerb
from penstock.model.changes import Change, Horizon, Item
from penstock.model.documents import Document, acting
from penstock.model.message import Moment
from penstock.retry_policies import BULK_SAVE_ATTEMPTS
from penstock.rules import validation
from penstock.rules.access import Right
from penstock.rules.bulk import add_skips, check_horizon, check_request
from penstock.store import Store

COUNTER = "bulk_counter"
MAX_ACTIVE = 20
MAX_LISTED = 1_000
MAX_DETAIL = 1_000
LOCAL = BulkActor()
Update = Callable[[BulkAction, Moment], BulkAction]


class Bulk:
    """Bulk actions with the rights of one caller. `penstock.agents` runs them."""

    def __init__(
        self, store: Store, directory: QueueCache, tenant: str, actor: BulkActor = LOCAL
    ) -> None:
        self.store = store
        self.directory = directory
        self.tenant = tenant
        self.actor = actor
        self.steps = BulkSteps(store, directory)

    async def start(
        self,
        verb: BulkVerb | str,
        *,
        filter: str | None = None,
        ids: Sequence[int] | None = None,
        queue: str | None = None,
        to_scope: str | None = None,
        priority: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        name: str | None = None,
        as_of: Horizon | None = None,
        scope: str = "default",
    ) -> BulkAction:
        """Starts an operation on all messages that match a filter, or that have these ids.

        Messages that change meanwhile are skipped. A dry run only counts; a short one is over when
        this returns. `as_of` of a dry run limits an action to the messages that it counted.
        """
        request = BulkRequest(
            verb=read_verb(verb),
            filter=filter,
            ids=None if ids is None else tuple(ids),
            queue=queue,
            to_scope=to_scope,
            priority=priority,
            rate=rate,
            dry_run=dry_run,
            name=name,
        )
        check_request(request)
        action = await self._draft(request, scope, as_of)
        if request.dry_run and request.ids is None:
            action = await self._count(action)
            if action.state is BulkState.DONE:
                return action
        return await self._create(action)

    async def _draft(self, request: BulkRequest, scope: str, as_of: Horizon | None) -> BulkAction:
        newest = await self.store.horizon()
        if as_of is not None:
            check_horizon(as_of, newest)
        if await self.store.scope(self.tenant, scope) is None:
            raise NotFound(f"no scope named {validation.clip(scope)}")
        action = BulkAction(
            id=0,
            tenant=self.tenant,
            scope=scope,
            request=request,
            actor=self.actor,
            as_of=as_of or newest,
            state=BulkState.COUNTING if request.dry_run else BulkState.RUNNING,
            created_at=newest.now,
            updated_at=newest.now,
        )
        # Refuses a queue that does not exist, and a filter or a queue that needs other rights.
        found = await self.steps.reader.find_scope(action)
        action = self.steps.reader.note_queues(action, found)
        if request.filter is not None:
            self.steps.reader.make_search(action, found, request.filter, MAX_SCANNED)
        return action

    async def _count(self, action: BulkAction) -> BulkAction:
        """Counts what a dry run would do, within the bounds of one search."""
        scope = await self.steps.reader.find_scope(action)
        page = await self.steps.reader.read(action, scope, MAX_SCANNED)
        decided = self.steps.decide_all(action, scope, page)
        count = sum(isinstance(decision, Item) for _, decision in decided)
        action = add_counted(add_skips(action, decided), count)
        if page.over:
            return replace(action, state=BulkState.DONE, ended_at=action.updated_at)
        return replace(action, cursor=page.cursor)

    async def _create(self, action: BulkAction) -> BulkAction:
        for _ in range(BULK_SAVE_ATTEMPTS):
            active = await self.store.documents(ACTIVE, f"{self.tenant}/", MAX_ACTIVE)
            if sum(each.name.startswith(f"{self.tenant}/") for each in active) >= MAX_ACTIVE:
                raise TooManyBulks(
                    f"{MAX_ACTIVE} bulk actions are active; wait until one ends, or abort one"
                )
            counter = await self.store.document(COUNTER, self.tenant)
            number = 1 if counter is None else int(counter.body) + 1
            made = replace(action, id=number)
            describe_start(made)
            if await self.store.advance(self._make_change(made, counter)) is not None:
                return made
        raise Busy("too many bulk actions are starting at once; try again")

    def _make_change(self, action: BulkAction, counter: Document | None) -> Change:
        name = make_name(self.tenant, action.id)
        version = 0 if counter is None else counter.version
        number = str(action.id).encode()
        ids = action.request.ids
        # The ids are kept apart, so that the action stays small.
        short = replace(action, request=replace(action.request, ids=None if ids is None else ()))
        saves = [Document(kind=ACTIVE, name=name, body=b"")]
        if ids is not None:
            saves.append(Document(kind=IDS, name=name, body=encode(tuple(dict.fromkeys(ids)))))
        return Change(
            guards=(
                Document(kind=COUNTER, name=self.tenant, body=number, version=version),
                make_document(short, 0),
            ),
            saves=tuple(saves),
        )

    async def get(self, id: int) -> BulkAction:
        return (await self._load(id, Right.READ)).action

    async def _load(self, id: int, right: Right) -> StoredAction:
        validation.check_number("id", id, 1, 10**12 - 1, whole=True, needed=True)
        found = await self.steps.load(make_name(self.tenant, id))
        if found is None or not await self._is_allowed(right, found.action):
            raise NotFound(f"no bulk action {id}")
        return found

    async def _is_allowed(self, right: Right, action: BulkAction) -> bool:
        """Actions may reach all queues of their scope: those of others need the right on all."""
        if action.actor.subject == self.actor.subject:
            return True
        access = await self.steps.reader.find_access(self.tenant, self.actor)
        return access.allows(right, action.scope)

    async def list_actions(self, *, active: bool = False, limit: int = 50) -> list[BulkAction]:
        """Lists actions, newest first. Ended ones are kept for 30 days."""
        validation.check_number("limit", limit, 1, MAX_LISTED, whole=True, needed=True)
        kind = ACTIVE if active else ACTION
        names = [each.name for each in await list_documents(self.store, kind, f"{self.tenant}/")]
        found: list[BulkAction] = []
        for name in reversed(names):
            stored = await self.steps.load(name)
            if stored is not None and await self._is_allowed(Right.READ, stored.action):
                found.append(stored.action)
            if len(found) == limit:
                break
        return found

    async def pause(self, id: int) -> BulkAction:
        def pause(action: BulkAction, now: Moment) -> BulkAction:
            if action.state is BulkState.PAUSED:
                return action
            return replace(action, state=BulkState.PAUSED, reason="requested", owner="")

        return await self._update(id, "paused", pause)

    async def resume(self, id: int) -> BulkAction:
        """Continues with the rights of the caller who resumes it."""

        def resume(action: BulkAction, now: Moment) -> BulkAction:
            counting = action.request.dry_run
            state = BulkState.COUNTING if counting else BulkState.RUNNING
            if action.state is not BulkState.PAUSED:
                return action
            return replace(action, state=state, reason=None, actor=self.actor, covers=(), owner="")

        return await self._update(id, "resumed", resume)

    async def abort(self, id: int) -> BulkAction:
        """Ends an action. Changes that were made are kept."""

        def abort(action: BulkAction, now: Moment) -> BulkAction:
            return replace(action, state=BulkState.ABORTED, reason="requested", ended_at=now)

        return await self._update(id, "aborted", abort)

    async def _update(self, id: int, word: str, update: Update) -> BulkAction:
        """Changes an action between two of its batches."""
        for _ in range(BULK_SAVE_ATTEMPTS):
            stored = await self._load(id, Right.MANAGE)
            if not stored.action.state.active:
                raise InvalidState(
                    f"bulk action {id} is {stored.action.state}; it cannot be {word}"
                )
            now = await self.store.now()
            changed = update(replace(stored.action, updated_at=now), now)
            saved = await self.steps.save(StoredAction(changed, stored.version))
            if saved is not None:
                return saved.action
        raise Busy(f"bulk action {id} is busy; try again")


def describe_start(action: BulkAction) -> None:
    """Adds the action to the audit entry of the call, if there is one."""
    if (act := acting.get()) is None:
        return
    request = action.request
    chosen = f"{len(request.ids or ())} ids" if request.filter is None else request.filter
    detail = f"{action.mark} {action.title} {chosen}"
    acting.set(replace(act, detail=detail[:MAX_DETAIL]))


def read_verb(verb: str) -> BulkVerb:
    try:
        return BulkVerb(verb)
    except ValueError:
        known = ", ".join(BulkVerb)
        raise InvalidInput(f"verb is {validation.clip(verb)}; expected one of {known}") from None
