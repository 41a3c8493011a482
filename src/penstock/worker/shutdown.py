"""Graceful shutdown of a worker: it claims no more, and its runs get a grace period to end."""

import asyncio
import time
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from penstock.worker.worker import Worker

log = structlog.get_logger()
# Time to write results after the grace period.
FINAL_FLUSH_TIMEOUT_S = 5.0


async def shut_down(worker: "Worker") -> None:
    """Releases unstarted messages, and lets running ones finish within the grace period."""
    for fetch in worker.fetchers:
        fetch.stop()
    await asyncio.gather(*worker.fetching, return_exceptions=True)
    worker.release(worker.quarantine.take_back())
    for lane in worker.routes.executors:
        worker.release(lane.take_back())
    worker.completer.hurry = True
    await wait_until_drained(worker, worker.options.grace)
    for cut in await asyncio.gather(*(lane.stop() for lane in worker.routes.executors)):
        worker.release(cut)
    if not await wait_until_drained(worker, FINAL_FLUSH_TIMEOUT_S):
        log.error("unsettled_at_shutdown", count=worker.completer.waiting)
    worker.run_log.log_left_out(time.monotonic())
    await worker.artifact_keeper.stop()
    await worker.heartbeat.stop()
    for task in worker.tasks:
        task.cancel()
    await asyncio.gather(*worker.tasks, return_exceptions=True)


async def wait_until_drained(worker: "Worker", timeout: float) -> bool:
    """Waits until nothing is held or running. Returns False on timeout."""
    try:
        async with asyncio.timeout(timeout):
            while worker.busy:
                worker.idle.clear()
                await worker.idle.wait()
    except TimeoutError:
        return False
    return True
