"""Runs the detectors of an app on new history rows."""

import asyncio
import threading
from collections.abc import Sequence

import msgspec
import structlog
from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from penstock.broker.anomalies import DETECTOR, add_stored, make_case
from penstock.broker.metrics.rows import read_state
from penstock.broker.queue_cache import QueueCache
from penstock.model.anomalies import AnomalyRow
from penstock.model.changes import Change
from penstock.model.detectors import Detected, Detector, DetectorRow
from penstock.model.documents import Document
from penstock.model.heads import HeadFeed
from penstock.model.message import Moment
from penstock.model.store_types import Cursor
from penstock.rules.anomalies import get_hour
from penstock.rules.metrics import Timing, time_rows
from penstock.store import Store

SECOND = 1_000_000
PAGE_SIZE = 500
TIMEOUT_S = 5.0
# After this many failures in a row, a detector is off until its worker starts again.
MAX_FAILURES = 3
MAX_DETECTED = 100
MAX_NOTE_LENGTH = 300
log: FilteringBoundLogger = structlog.get_logger()
encode = msgspec.json.Encoder().encode


class DetectorState(Struct, frozen=True):
    cursor: Cursor
    failures: int = 0
    # The process in which it failed too often.
    off_in: str | None = None


decode = msgspec.json.Decoder(DetectorState).decode


class CustomDetectors:
    name = "custom_detectors"
    every = 5.0

    def __init__(
        self,
        store: Store,
        directory: QueueCache,
        by: str,
        detectors: Sequence[Detector],
        tenant: str = "default",
    ) -> None:
        self.store = store
        self.directory = directory
        self.by = by
        self.detectors = detectors
        self.tenant = tenant

    async def tick(self) -> float:
        for detector in self.detectors:
            await self.run(detector)
        return self.every

    async def run(self, detector: Detector) -> None:
        """Shows one page to a detector. Its cursor and anomalies are written in one change."""
        found = await self.store.document(DETECTOR, detector.name)
        version = 0 if found is None else found.version or 0
        if found is None:
            # A new detector begins with what happens from now on.
            state = DetectorState((await read_state(self.store))[0].cursor)
        else:
            state = decode(found.body)
        if state.off_in == self.by:
            return
        page = await self.store.heads(state.cursor, PAGE_SIZE)
        if version and not page.history and not page.messages:
            return
        await self.directory.refresh()
        try:
            cases = await call_in_thread(detector, self.make_rows(page))
        except Exception as error:  # noqa: BLE001 - recorded as an anomaly
            await self.note_failure(detector, state, version, error)
            return
        now = await self.store.now()
        rows = [self.make_anomaly(detector, each, now) for each in cases]
        found_rows = [each for each in rows if each is not None]
        guards = await add_stored(self.store, self.directory, found_rows)
        state = DetectorState(page.cursor)
        await self.store.advance(
            Change(guards=(self.make_document(detector, state, version), *guards))
        )

    def make_document(self, detector: Detector, state: DetectorState, version: int) -> Document:
        return Document(kind=DETECTOR, name=detector.name, body=encode(state), version=version)

    async def note_failure(
        self, detector: Detector, state: DetectorState, version: int, error: Exception
    ) -> None:
        """The page is shown again, and after some failures the detector is off."""
        failures = state.failures + 1
        off = failures >= MAX_FAILURES
        log.warning("detector_failed", detector=detector.name, failures=failures, off=off,
                    error=f"{type(error).__name__}: {error}")  # fmt: skip
        changed = DetectorState(state.cursor, 0 if off else failures, self.by if off else None)
        guards = [self.make_document(detector, changed, version)]
        if off:
            case = make_case("detector_failed", await self.store.now(), consumer=detector.name)
            guards += await add_stored(self.store, self.directory, [case])
        await self.store.advance(Change(guards=tuple(guards)))

    def make_rows(self, page: HeadFeed) -> list[DetectorRow]:
        return [made for each in time_rows(page) if (made := self.make_row(each)) is not None]

    def make_row(self, timing: Timing) -> DetectorRow | None:
        """Returns None for the rows of other tenants."""
        row, head = timing.row, timing.head
        queue = self.directory.by_id.get(row.queue_id)
        if queue is None or queue.scope.tenant != self.tenant:
            return None
        return DetectorRow(
            id=row.id,
            scope=queue.scope.name,
            queue=queue.name,
            type="" if head is None else head.type,
            verb=row.verb,
            state=row.state,
            reason=row.reason,
            error=row.error,
            attempts=row.attempts,
            deliveries=row.deliveries,
            consumer=row.consumer,
            wait=None if timing.wait is None else timing.wait / SECOND,
            run=None if timing.run is None else timing.run / SECOND,
            body_bytes=0 if head is None else head.size,
            at=row.at,
        )

    def make_anomaly(self, detector: Detector, case: Detected, now: Moment) -> AnomalyRow | None:
        for queue in self.directory.by_id.values():
            if queue.name == case.queue and queue.scope.tenant == self.tenant:
                return AnomalyRow(
                    kind=detector.name,
                    severity=detector.severity,
                    hour=get_hour(now),
                    queue_id=queue.id,
                    type=case.type[:200],
                    consumer=case.consumer[:200],
                    count=case.count,
                    value=case.value,
                    message_id=case.message_id,
                    first_at=now,
                    last_at=now,
                    note=None if case.note is None else case.note[:MAX_NOTE_LENGTH],
                )
        return None


async def call_in_thread(detector: Detector, rows: list[DetectorRow]) -> list[Detected]:
    """Calls the detector in a thread of its own, which is abandoned if it hangs."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[list[Detected]] = loop.create_future()

    def answer(found: list[Detected] | None, error: BaseException | None) -> None:
        if not done.done():
            done.set_exception(error) if error is not None else done.set_result(found or [])

    def work() -> None:
        found, failure = None, None
        try:
            found = check_detected(list(detector.function(rows) or ()))
        except BaseException as error:  # noqa: BLE001 - handed to the agent
            failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
        try:
            loop.call_soon_threadsafe(answer, found, failure)
        except RuntimeError as error:
            # It was too late: the worker has stopped.
            log.info("detector_ignored", detector=detector.name, error=str(error))

    threading.Thread(target=work, name=f"detector {detector.name}", daemon=True).start()
    async with asyncio.timeout(TIMEOUT_S):
        return await done


def check_detected(found: list[Detected]) -> list[Detected]:
    for each in found:
        if not isinstance(each, Detected):
            raise TypeError(f"a detector returns Detected, not {type(each).__name__}")
    return found[:MAX_DETECTED]
