"""Loops that must not end: a worker without one would hold its messages and do nothing."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

log = structlog.get_logger()
RETRY_DELAY_S = 1.0


async def repeat_forever(step: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Step by step, until cancelled; an error is logged, and after a moment it goes on."""
    while True:
        try:
            await step()
        except Exception as error:
            log.error("worker_loop_failed", loop=step.__qualname__, exc_info=error)
            await asyncio.sleep(RETRY_DELAY_S)
