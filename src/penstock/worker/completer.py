"""Writes the results of runs in batches: acks, settlements and progress."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

import structlog
from msgspec import Struct

from penstock.artifacts.upload import Content, Upload
from penstock.broker.interfaces.broker import BrokerInterface
from penstock.errors import StoreError
from penstock.model.message import Fail, Flag, Leased, Settlement
from penstock.model.store_types import DONE, MISSING, Answer, AnswerKind, Completion, Lock, Mark
from penstock.retry_policies import LEASE_RETRY_DELAY_S
from penstock.worker.ack_policy import format_error, judge
from penstock.worker.context import Context
from penstock.worker.handler import Handler
from penstock.worker.steps import StepRun
from penstock.worker.tracebacks import Tracebacks

log = structlog.get_logger()
# A smaller batch waits a moment for more results, if other messages are running.
MIN_BATCH = 50
# Progress is for people and can wait a little longer.
NOTE_DELAY_S = 0.1
# The row was locked by another transaction, or a cancel request came in between.
RETRIED_ANSWERS = (AnswerKind.BUSY, AnswerKind.CHANGED)


class RunEnd(Struct, frozen=True, gc=False):
    """The outcome of a run: an ack with its result if `verdict` is None, or a settlement."""

    context: Context
    verdict: Settlement | None = None
    result: bytes | None = None
    error: BaseException | None = None


Write: TypeAlias = Callable[[list[RunEnd]], Awaitable[list[Answer]]]


class StepOpener(Protocol):
    """Opens the durable steps of the runs of a worker, in its scope."""

    scope: str

    def open_steps(self, delivery: Leased) -> StepRun: ...


class Completer:
    """Keeps one write in flight. Results that arrive meanwhile go in the next one."""

    def __init__(
        self,
        broker: BrokerInterface,
        held: dict[int, Context],
        linger: float,
        on_written: Callable[[list[RunEnd], list[Answer]], None],
        suspender: StepOpener,
    ) -> None:
        self.suspender = suspender
        # A message that others wait for has ended.
        self.awaited = False
        self.broker = broker
        self.held = held
        self.linger = linger
        self.on_written = on_written
        self.loop = asyncio.get_running_loop()
        self.acks: list[RunEnd] = []
        self.others: list[RunEnd] = []
        self.notes: deque[Context] = deque()
        self.noting = False
        self.dirty = asyncio.Event()
        self.hurry = False

    def add(self, end: RunEnd) -> None:
        ends = self.acks if end.verdict is None else self.others
        ends.append(end)
        # The writer sleeps only while there are none.
        if len(ends) == 1:
            self.dirty.set()

    def note(self, context: Context) -> None:
        """Schedules a progress write. May be called from any thread."""
        self.notes.append(context)
        if not self.noting:
            self.noting = True
            # The loop may have closed meanwhile.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.loop.call_later, NOTE_DELAY_S, self.dirty.set)

    @property
    def waiting(self) -> int:
        return len(self.acks) + len(self.others)

    async def step(self) -> None:
        if not self.waiting:
            self.dirty.clear()
            await self.dirty.wait()
        company = len(self.held) > self.waiting
        if self.waiting < MIN_BATCH and company and not self.hurry:
            await asyncio.sleep(self.linger)
        acks, self.acks = self.acks, []
        others, self.others = self.others, []
        await self.write(acks, self.complete)
        await self.write(others, self.settle)
        if self.awaited:
            self.awaited = False
            self.broker.waits.resume_soon()
        await self.write_notes()

    async def write(self, ends: list[RunEnd], write: Write) -> None:
        """Writes results, and retries them all while the store is failing."""
        if not ends:
            return
        try:
            answers = await write(ends)
        except StoreError as error:
            self.broker.outages.report_failure("flush", error)
            for end in ends:
                self.add(end)
            await asyncio.sleep(LEASE_RETRY_DELAY_S)
        except Exception as error:  # noqa: BLE001 - one bad result must not stop the rest
            await self.write_one_by_one(ends, write, error)
        else:
            self.broker.outages.report_success("flush")
            self.handle_answers(ends, answers)

    async def write_one_by_one(self, ends: list[RunEnd], write: Write, error: Exception) -> None:
        if len(ends) > 1:
            for end in ends:
                await self.write([end], write)
            return
        log.error("settle_failed", id=ends[0].context.id, error=repr(error))
        self.handle_answers(ends, [MISSING])

    async def complete(self, ends: list[RunEnd]) -> list[Answer]:
        items, flags = list[Completion](), 0
        for end in ends:
            delivery = end.context.delivery
            items.append(end.context.make_completion(end.result))
            flags |= delivery.flags
        self.awaited = self.awaited or flags & Flag.AWAITED > 0
        # These locks came from this store, so they need no validation.
        return await self.broker.complete_claimed(items)

    async def settle(self, ends: list[RunEnd]) -> list[Answer]:
        answers = await self.find_committed(ends)
        left = [end for end, answer in zip(ends, answers, strict=True) if answer is None]
        self.awaited = self.awaited or any(
            end.context.delivery.flags & Flag.AWAITED for end in ends
        )
        items = [(end.context.delivery, end.verdict) for end in left if end.verdict is not None]
        settled = iter(await self.broker.settle_many(items) if items else ())
        return [next(settled) if answer is None else answer for answer in answers]

    async def find_committed(self, ends: list[RunEnd]) -> list[Answer | None]:
        """Returns the answer for each run that was completed in the handler's transaction."""
        inside = [end.context for end in ends if end.context.inside]
        if not inside:
            return [None] * len(ends)
        locks = [Lock(context.id, context.fence) for context in inside]
        explained = iter(await self.broker.explain_completions(locks))
        # CHANGED: this worker still holds the message, so the transaction was rolled back.
        answers = [next(explained) if end.context.inside else None for end in ends]
        return [
            None if answer is None or answer.kind is AnswerKind.CHANGED else answer
            for answer in answers
        ]

    def complete_on(self, connection: object, item: Completion) -> None:
        self.broker.complete_on(connection, item)

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        await self.broker.acomplete_on(connection, item)

    async def find_seen(self, queue: str, key: str) -> bool:
        return await self.broker.seen(queue, key, scope=self.suspender.scope) is not None

    def spool(self, context: Context, name: str, content: Content) -> Upload | None:
        return self.broker.artifacts.spool(name, content)

    def open_steps(self, delivery: Leased) -> StepRun:
        return self.suspender.open_steps(delivery)

    def handle_answers(self, ends: list[RunEnd], answers: list[Answer]) -> None:
        held = self.held
        for end, answer in zip(ends, answers, strict=True):
            context = end.context
            if answer is not DONE and answer.kind in RETRIED_ANSWERS:
                self.add(end)
            elif held.get(context.delivery.id) is context:
                del held[context.delivery.id]
        self.on_written(ends, answers)

    async def write_notes(self) -> None:
        self.noting = False
        marks: list[Mark] = []
        while self.notes:
            context = self.notes.popleft()
            note = context.take_note()
            if note is not None and not context.over:
                marks.append(Mark(context.id, context.fence, False, *note))
        if marks:
            try:
                await self.broker.mark_many(marks)
            except StoreError as error:
                self.broker.outages.report_failure("progress", error)
            else:
                self.broker.outages.report_success("progress")


class ArtifactKeeper:
    """Stores the attached files of a run before its result is written."""

    def __init__(self, broker: BrokerInterface, add: Callable[[RunEnd], None]) -> None:
        self.broker = broker
        self.add = add
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, handler: Handler, end: RunEnd) -> None:
        task = asyncio.create_task(self.keep(handler, end))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def keep(self, handler: Handler, end: RunEnd) -> None:
        """Uploads the files. The run has failed if they cannot be stored."""
        context = end.context
        try:
            if end.verdict is None or isinstance(end.verdict, Fail):
                uploads, context.attached = context.attached or [], None
                await self.broker.artifacts.attach_uploads(context.delivery, uploads)
        except Exception as error:  # noqa: BLE001 - whatever it was, the message has to end
            log.warning("artifact_upload_failed", id=context.id, error=format_error(error))
            verdict = judge(handler.rules, context.delivery, error)
            end = RunEnd(context, Tracebacks().attach(verdict, error), None, error)
        drop(context)
        self.add(end)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def drop(context: Context) -> None:
    """Discards the files that a run attached."""
    for upload in context.attached or ():
        upload.discard()
    context.attached = None
