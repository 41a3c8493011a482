"""Does one thing to many messages: at a rate, with a bar, and an answer for each."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import click
from msgspec import Struct

from penstock.broker.local import Broker
from penstock.errors import PenstockError

# At once: the store writes them together.
BATCH_SIZE = 100
# Fewer are done before a bar can be read.
WORTH_A_BAR = 20


class Bulk(Struct, frozen=True):
    """What came of it: the ids, and why the others were refused."""

    done: list[str]
    errors: list[str]


async def apply_to_each(
    broker: Broker,
    references: Sequence[str],
    act: Callable[[Broker, str], Coroutine[Any, Any, str]],
    rate: float | None,
    *,
    hidden: bool,
) -> Bulk:
    """`act` gives the id of the message it left; a refusal of one does not stop the others."""
    bulk = Bulk([], [])
    loop = asyncio.get_running_loop()
    started = loop.time()
    size = BATCH_SIZE if rate is None else max(1, min(BATCH_SIZE, int(rate / 10)))
    hidden = hidden or len(references) < WORTH_A_BAR or not sys.stderr.isatty()
    with click.progressbar(length=len(references), file=sys.stderr, hidden=hidden) as bar:
        for first in range(0, len(references), size):
            if rate is not None:
                await asyncio.sleep(started + first / rate - loop.time())
            batch = references[first : first + size]
            acts = (act(broker, reference) for reference in batch)
            for outcome in await asyncio.gather(*acts, return_exceptions=True):
                note(bulk, outcome)
            bar.update(len(batch))
    return bulk


def note(bulk: Bulk, outcome: str | BaseException) -> None:
    match outcome:
        case str():
            bulk.done.append(outcome)
        case PenstockError():
            bulk.errors.append(str(outcome))
        case BaseException():
            raise outcome
