"""Copies a store into an empty one. Messages keep their ids, so that a copy can be resumed."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.alerts import ALERT
from penstock.broker.documents import list_documents
from penstock.broker.views import VIEW
from penstock.broker.waiting.inbox import STATE as HUMAN_STEP
from penstock.broker.waiting.workflow_build import KEY as WORKFLOW_KEY
from penstock.broker.waiting.workflow_build import OPEN as OPEN_WORKFLOW
from penstock.broker.waiting.workflow_build import WORKFLOW
from penstock.errors import InvalidInput, InvalidState, SlugConflict
from penstock.model.broadcast import BROADCAST, BROADCAST_CATCH_UP, BROADCAST_CLAIM
from penstock.model.copies import CopyCursor, StoredLife, StoreDump
from penstock.model.documents import Document
from penstock.model.human import PATTERN
from penstock.model.human_webhooks import HUMAN_WEBHOOK
from penstock.model.message import (
    TICKET_PLACES,
    Flag,
    HistoryRow,
    Moment,
    State,
    Verb,
    keep_lasting_flags,
)
from penstock.model.queue import SCOPE, Queue, QueueState
from penstock.model.routing import (
    RULE,
    RULE_CURSOR,
    RULE_CURSOR_NAME,
    RULE_VERSION,
    StoredRule,
    Trigger,
)
from penstock.model.schemas import BINDING, SCHEMA
from penstock.model.store_types import Cursor, PlaceCount
from penstock.model.topology import TOPOLOGY
from penstock.store import Store

PROGRESS = ("copy", "progress")
# Documents that users configure. Others belong to one store: webhook secrets, metrics, reports.
DOCUMENT_KINDS = (
    "key", "role", "trust", "subscription", SCHEMA, BINDING, SCOPE, TOPOLOGY, RULE, RULE_VERSION,
    BROADCAST, BROADCAST_CLAIM, ALERT, PATTERN, HUMAN_WEBHOOK, HUMAN_STEP, WORKFLOW,
    OPEN_WORKFLOW, WORKFLOW_KEY, VIEW,
)  # fmt: skip
PAGE_SIZE = 2_500
# Pages between two saves of the progress. A repeated page changes nothing.
PAGES_PER_SAVE = 4


class CopyProgress(Struct, frozen=True):
    """The progress of a copy, kept in the target. `queues` maps queue ids of the source."""

    source: str
    queues: dict[int, int]
    cursor: CopyCursor = CopyCursor()
    done: bool = False


class CopyPlan(Struct, frozen=True):
    """A preview of a copy: the source's queues with their counts by place."""

    queues: list[Queue]
    counts: dict[tuple[int, str], int]
    schedules: int
    resumes: bool

    @property
    def messages(self) -> int:
        return sum(count for (_, place), count in self.counts.items() if place == "message")

    @property
    def claimed(self) -> int:
        return sum(count for (_, place), count in self.counts.items() if place == "lease")


decode = msgspec.json.Decoder(CopyProgress).decode
decode_rule = msgspec.json.Decoder(StoredRule).decode
encode = msgspec.json.Encoder().encode


async def plan_copy(source: Store, target: Store | None) -> CopyPlan:
    """Checks both stores without changing them. A target of None does not exist yet."""
    progress = None
    if target is not None:
        if await source.secret() == await target.secret():
            raise InvalidInput("source and target are the same store")
        progress = await load_progress(target)
        await refuse_used(source, target, progress)
    return CopyPlan(
        await source.queues(),
        {(each.queue_id, each.place): each.count for each in await source.census()},
        len(await source.schedules()),
        progress is not None,
    )


async def copy_store(
    source: Store,
    target: Store,
    *,
    release_claimed: bool = False,
    report: Callable[[int], None] = lambda written: None,
) -> CopyPlan:
    """Copies everything and compares the two. Call it again after a crash to resume.

    The scopes of the target are paused until the copy is complete. `report` is called with the
    number of messages read so far.
    """
    plan = await plan_copy(source, target)
    if plan.claimed and not release_claimed:
        raise InvalidState(
            f"{plan.claimed} messages are claimed in the source: stop its workers and wait until"
            " their messages end, or copy them as ready with --release-claimed"
        )
    if starting := await source.documents(BROADCAST_CATCH_UP, "", 1):
        raise InvalidState(
            f"subscription {starting[0].name!r} still receives older messages; let a worker or"
            " server of the source run until it is live"
        )
    progress = await load_progress(target) or await create_queues(source, target, plan)
    progress = await copy_messages(source, target, progress, report)
    await copy_documents(source, target)
    await copy_schedules(source, target, progress.queues)
    compare(await source.census(), await target.census(), progress.queues, bool(plan.claimed))
    await switch_on(plan, target, progress.queues)
    await save_progress(target, replace(progress, done=True))
    return plan


async def load_progress(target: Store) -> CopyProgress | None:
    found = await target.document(*PROGRESS)
    return None if found is None else decode(found.body)


async def save_progress(target: Store, progress: CopyProgress) -> None:
    kind, name = PROGRESS
    await target.save_documents([Document(kind=kind, name=name, body=encode(progress))])


async def identify(source: Store) -> str:
    return sha256(b"penstock copy " + await source.secret()).hexdigest()[:16]


async def refuse_used(source: Store, target: Store, progress: CopyProgress | None) -> None:
    if progress is None:
        messages = sum(each.count for each in await target.census() if each.place == "message")
        if messages or await target.schedules() or await target.cursors():
            raise InvalidState(
                f"the target is not empty: it has {messages} messages; copy into a new store"
            )
    elif progress.source != await identify(source):
        raise InvalidState("the target is a copy of another store; copy into a new store")
    elif progress.done:
        raise InvalidState("the target is already a complete copy; copy into a new store")


async def create_queues(source: Store, target: Store, plan: CopyPlan) -> CopyProgress:
    """Creates scopes, paused, and queues. Deleted queues keep the messages that ended there."""
    queue_ids: dict[int, int] = {}
    for queue in sorted(plan.queues, key=lambda each: each.state is not QueueState.DELETED):
        tenant, name = queue.scope.tenant, queue.scope.name
        scope = await target.scope(tenant, name) or await target.create_scope(tenant, name)
        await target.pause_scope(scope.id, True)
        queue_ids[queue.id] = (await create_queue(target, scope.id, queue)).id
    progress = CopyProgress(await identify(source), queue_ids)
    await save_progress(target, progress)
    return progress


async def create_queue(target: Store, scope_id: int, queue: Queue) -> Queue:
    if queue.state is QueueState.DELETED:
        try:
            made = await target.create_queue(scope_id, queue.name, queue.settings)
        except SlugConflict:
            name = f"{queue.name}.deleted-{queue.id}"
            made = await target.create_queue(scope_id, name, queue.settings)
        await target.delete_queue(made.id)
        return made
    found = await target.queue(queue.scope.tenant, queue.scope.name, queue.name)
    if found is None:
        return await target.create_queue(scope_id, queue.name, queue.settings)
    await target.change_queue(found.id, settings=queue.settings)
    return found


async def copy_messages(
    source: Store, target: Store, progress: CopyProgress, report: Callable[[int], None]
) -> CopyProgress:
    """Reads the next page while one is written."""
    read = pages = 0
    now = await source.now()
    page = await source.dump(progress.cursor, PAGE_SIZE)
    while not page.done:
        ahead = asyncio.create_task(source.dump(page.cursor, PAGE_SIZE))
        try:
            await target.restore(release_leases(page, now), progress.queues)
        except BaseException:
            ahead.cancel()
            raise
        pages += 1
        progress = replace(progress, cursor=page.cursor)
        if pages % PAGES_PER_SAVE == 0:
            await save_progress(target, progress)
        read += len(page.lives)
        report(read)
        page = await ahead
    # The counters of the source, also if it has no messages.
    await target.restore(page, progress.queues)
    await save_progress(target, progress)
    return progress


def release_leases(page: StoreDump, now: Moment) -> StoreDump:
    """Puts claimed messages back: no consumer holds them in the target."""
    if not any(life.ticket is not None and life.ticket.place == "lease" for life in page.lives):
        return page
    return replace(page, lives=[release_lease(life, now) for life in page.lives])


def release_lease(life: StoredLife, now: Moment) -> StoredLife:
    ticket = life.ticket
    if ticket is None or ticket.place != "lease":
        return life
    if ticket.flags & Flag.CANCEL_REQUESTED:
        raise InvalidState(
            f"message {life.message.id} is claimed and its cancel was requested; wait until it"
            " ends, or run `penstock cancel --force`"
        )
    # Counts the delivery: its run may have begun. A claimed dead letter is dead again.
    dead, flags = ticket.dead_at is not None, keep_lasting_flags(ticket.flags)
    row = HistoryRow(
        position=0, id=life.message.id, queue_id=life.message.queue_id, verb=Verb.RECLAIM,
        state=State.DEAD if dead else State.READY, reason=ticket.reason if dead else "copied",
        error=ticket.error, attempts=ticket.attempts, deliveries=ticket.deliveries, consumer=None,
        fence=None, claimed_at=None, at=now, due_at=None, final=False,
    )  # fmt: skip
    return replace(
        life,
        ticket=replace(ticket, place="dead" if dead else "ready", flags=flags),
        history=(*life.history, row),
    )


async def copy_documents(source: Store, target: Store) -> None:
    now = await source.now()
    for kind in DOCUMENT_KINDS:
        after = ""
        while page := await source.documents(kind, after, PAGE_SIZE):
            await target.save_documents([prepare_document(each, now) for each in page])
            after = page[-1].name
    await copy_versions(source, target, BROADCAST)
    await follow_rules(target)


def prepare_document(document: Document, now: Moment) -> Document:
    if document.kind != RULE:
        return replace(document, version=None)
    # The source has fired on the ends that are copied.
    rule = replace(decode_rule(document.body), since=now)
    return replace(document, version=None, body=encode(rule))


async def copy_versions(source: Store, target: Store, kind: str) -> None:
    """Raises the versions of documents to those of the source, to which messages refer."""
    for document in await list_documents(source, kind):
        found = await target.document(kind, document.name)
        for _ in range((document.version or 0) - (found.version or 0 if found else 0)):
            await target.save_documents([replace(document, version=None)])


async def follow_rules(target: Store) -> None:
    """Lets rules on ends begin to read if there is one."""
    found = await list_documents(target, RULE)
    if any(decode_rule(each.body).rule.on is not Trigger.PUBLISHED for each in found):
        body = encode(Cursor())
        start = Document(kind=RULE_CURSOR, name=RULE_CURSOR_NAME, body=body, version=0)
        await target.save_documents([start])


async def copy_schedules(source: Store, target: Store, queue_ids: Mapping[int, int]) -> None:
    for schedule in await source.schedules():
        await target.save_schedule(replace(schedule, id=0, queue_id=queue_ids[schedule.queue_id]))


def compare(
    source: list[PlaceCount], target: list[PlaceCount], queue_ids: Mapping[int, int], released: bool
) -> None:
    """Raises unless every queue has the same messages in the same places."""
    wanted = tally_places(source, queue_ids, released)
    found = tally_places(target, {id: id for id in queue_ids.values()}, released)
    if differing := sorted(key for key in wanted | found if wanted[key] != found[key]):
        queue_id, place = differing[0]
        raise InvalidState(
            f"the stores differ in {len(differing)} counts; queue {queue_id} of the target has"
            f" {found[differing[0]][0]} {place} and should have {wanted[differing[0]][0]}. The"
            " source changed during the copy, or an agent runs on the target: stop the workers,"
            " servers and publishers of both, and copy into a new store"
        )


def tally_places(
    tallies: list[PlaceCount], queue_ids: Mapping[int, int], released: bool
) -> "Places":
    counts: Counter[tuple[int, str]] = Counter()
    digests: Counter[tuple[int, str]] = Counter()
    for each in tallies:
        place = "unfinished" if released and each.place in TICKET_PLACES else each.place
        key = queue_ids.get(each.queue_id, each.queue_id), place
        counts[key] += each.count
        digests[key] += each.digest
    return Places({key: (counts[key], digests[key]) for key in counts if counts[key]})


class Places(dict[tuple[int, str], tuple[int, int]]):
    """Counts and digests by queue and place. What is not there has none."""

    def __missing__(self, key: tuple[int, str]) -> tuple[int, int]:
        return (0, 0)


async def switch_on(plan: CopyPlan, target: Store, queue_ids: Mapping[int, int]) -> None:
    """Gives queues and scopes the states they have in the source."""
    scopes = {}
    for queue in plan.queues:
        scopes[queue.scope.tenant, queue.scope.name] = queue.scope.paused
        if queue.state not in (QueueState.ACTIVE, QueueState.DELETED):
            await target.change_queue(queue_ids[queue.id], state=queue.state)
    for (tenant, name), paused in scopes.items():
        scope = await target.scope(tenant, name)
        if scope is not None:
            await target.pause_scope(scope.id, paused)
