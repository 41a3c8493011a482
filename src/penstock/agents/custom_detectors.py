"""Runs the detectors of an app on new history rows."""

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from penstock.broker.anomalies import DETECTOR, add_stored, make_case, record_anomalies
from penstock.broker.metrics.rows import read_state
from penstock.broker.queue_cache import QueueCache
from penstock.model.anomalies import AnomalyRow
from penstock.model.changes import Change
from penstock.model.detectors import Detected, Detector, DetectorRow
from penstock.model.documents import Document
from penstock.model.heads import HeadFeed
from penstock.model.message import MICROS_PER_SECOND, Moment
from penstock.model.queue import Queue
from penstock.model.store_types import Cursor
from penstock.rules.anomalies import get_hour
from penstock.rules.metrics import Timing, time_rows
from penstock.store import Store

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


decode = msgspec.json.Decoder(DetectorState).decode


class CustomDetectors:
    name = "custom_detectors"
    every = 5.0

    def __init__(
        self,
        store: Store,
        directory: QueueCache,
        detectors: Sequence[Detector],
        tenant: str = "default",
    ) -> None:
        self.store = store
        self.directory = directory
        self.detectors = detectors
        self.tenant = tenant
        # Failures in a row in this process, by detector.
        self.failures: Counter[str] = Counter()

    async def tick(self) -> float:
        for detector in self.detectors:
            await self.run(detector)
        return self.every

    async def run(self, detector: Detector) -> None:
        """Shows one page to a detector. Its cursor and anomalies are written in one change."""
        if self.failures[detector.name] >= MAX_FAILURES:
            return
        found = await self.store.document(DETECTOR, detector.name) or await self.begin(detector)
        if found is None:
            return
        page = await self.store.heads(decode(found.body).cursor, PAGE_SIZE)
        if not page.history and not page.messages:
            return
        await self.directory.refresh()
        try:
            cases = await call_in_thread(detector, self.make_rows(page))
        except Exception as error:  # noqa: BLE001 - recorded as an anomaly
            await self.note_failure(detector, error)
            return
        self.failures[detector.name] = 0
        now = await self.store.now()
        rows = [self.make_anomaly(detector, each, now) for each in cases]
        known = [each for each in rows if each is not None]
        guards = await add_stored(self.store, self.directory, known)
        seen = replace(found, body=encode(DetectorState(page.cursor)))
        await self.store.advance(Change(guards=(seen, *guards)))

    async def begin(self, detector: Detector) -> Document | None:
        """Saves where a new detector begins: with what happens from now on."""
        cursor = (await read_state(self.store))[0].cursor
        body = encode(DetectorState(cursor))
        document = Document(kind=DETECTOR, name=detector.name, body=body, version=0)
        await self.store.advance(Change(guards=(document,)))
        return await self.store.document(DETECTOR, detector.name)

    async def note_failure(self, detector: Detector, error: Exception) -> None:
        """The page is shown again, and after some failures the detector is off in this process."""
        self.failures[detector.name] += 1
        failures = self.failures[detector.name]
        off = failures >= MAX_FAILURES
        log.warning("detector_failed", detector=detector.name, failures=failures, off=off,
                    error=f"{type(error).__name__}: {error}")  # fmt: skip
        if off:
            case = make_case("detector_failed", await self.store.now(), consumer=detector.name)
            await record_anomalies(self.store, self.directory, [case])

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
            wait=None if timing.wait is None else timing.wait / MICROS_PER_SECOND,
            run=None if timing.run is None else timing.run / MICROS_PER_SECOND,
            body_bytes=0 if head is None else head.size,
            at=row.at,
        )

    def make_anomaly(self, detector: Detector, case: Detected, now: Moment) -> AnomalyRow | None:
        """Returns None if the queue does not report this kind."""
        place = (self.tenant, case.scope, case.queue)
        queue = find_queue(self.directory, place)
        if queue is None:
            log.warning("detected_in_no_queue", detector=detector.name, scope=case.scope,
                        queue=case.queue)  # fmt: skip
            return None
        if not queue.settings.anomalies.allows(detector.name):
            return None
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


def find_queue(directory: QueueCache, place: tuple[str, str, str]) -> Queue | None:
    for queue in directory.by_id.values():
        if (queue.scope.tenant, queue.scope.name, queue.name) == place:
            return queue
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
