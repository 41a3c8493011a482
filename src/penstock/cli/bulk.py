"""Applies an operation to many messages, with a rate limit and a progress bar."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.local import Broker
from penstock.errors import PenstockError
from penstock.model.documents import acting

# The store commits concurrent operations together.
BATCH_SIZE = 100
MIN_FOR_PROGRESS_BAR = 20


class BulkResult(Struct, frozen=True):
    """Ids of messages that succeeded, and errors of the others."""

    done: list[str]
    errors: list[str]


async def apply_to_each(
    broker: Broker,
    references: Sequence[str],
    act: Callable[[Broker, str], Coroutine[Any, Any, str]],
    rate: float | None,
    *,
    hidden: bool,
) -> BulkResult:
    """Call `act`, which returns an id, for each reference. An error does not stop the others."""
    bulk = BulkResult([], [])
    loop = asyncio.get_running_loop()
    started = loop.time()
    size = BATCH_SIZE if rate is None else max(1, min(BATCH_SIZE, int(rate / 10)))
    hidden = hidden or len(references) < MIN_FOR_PROGRESS_BAR or not sys.stderr.isatty()
    with click.progressbar(length=len(references), file=sys.stderr, hidden=hidden) as bar:
        for first in range(0, len(references), size):
            if rate is not None:
                await asyncio.sleep(started + first / rate - loop.time())
            batch = references[first : first + size]
            acts = (act_on(act, broker, reference) for reference in batch)
            for outcome in await asyncio.gather(*acts, return_exceptions=True):
                add_outcome(bulk, outcome)
            bar.update(len(batch))
    return bulk


async def act_on(
    act: Callable[[Broker, str], Coroutine[Any, Any, str]], broker: Broker, reference: str
) -> str:
    """Call `act` with an audit entry that names the message. Every call has its own context."""
    if (entry := acting.get()) is not None:
        acting.set(replace(entry, target=reference))
    return await act(broker, reference)


def add_outcome(bulk: BulkResult, outcome: str | BaseException) -> None:
    match outcome:
        case str():
            bulk.done.append(outcome)
        case PenstockError():
            bulk.errors.append(str(outcome))
        case BaseException():
            raise outcome
