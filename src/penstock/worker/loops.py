"""Runs the worker's background loops, which must not end."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from penstock.retry_policies import LOOP_RETRY_DELAY_S

log = structlog.get_logger()


async def repeat_forever(step: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Repeats a step until cancelled. Errors are logged, and the step is retried."""
    while True:
        try:
            await step()
        except Exception as error:
            log.error("worker_loop_failed", loop=step.__qualname__, exc_info=error)
            await asyncio.sleep(LOOP_RETRY_DELAY_S)
