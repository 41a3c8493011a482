"""Reads when the attempts of a failed message began, for strategies that look at times."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import structlog

from penstock.broker.interfaces.broker import BrokerInterface
from penstock.errors import PenstockError
from penstock.model.message import HistoryRow, Moment, Verb
from penstock.worker.ack_policy import format_error
from penstock.worker.context import Context
from penstock.worker.retry_strategies import AttemptTimes

log = structlog.get_logger()


class AttemptTimer:
    def __init__(self, broker: BrokerInterface, scope: str) -> None:
        self.broker = broker
        self.scope = scope
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, context: Context, done: Callable[[], None]) -> None:
        """Sets `context.times`, if they can be read, and calls `done`."""
        task = asyncio.create_task(self.read(context, done))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def read(self, context: Context, done: Callable[[], None]) -> None:
        try:
            record = await self.broker.admin.get(context.id, scope=self.scope)
        except PenstockError as error:
            log.warning("attempt_times_unknown", id=context.id, error=format_error(error))
        else:
            claims = list_claims(record.timeline)
            last = record.claimed_at or max(claims, default=record.message.created_at)
            context.times = AttemptTimes(to_datetime(min([*claims, last])), to_datetime(last))
        done()


def list_claims(timeline: Sequence[HistoryRow]) -> list[Moment]:
    """Lists when the ended deliveries since the last wait or redrive were claimed."""
    claims: list[Moment] = []
    for row in timeline:
        if row.verb in (Verb.WAIT, Verb.REDRIVE):
            claims.clear()
        elif row.claimed_at is not None:
            claims.append(row.claimed_at)
    return claims


def to_datetime(moment: Moment) -> datetime:
    return datetime.fromtimestamp(moment / 1_000_000, UTC)
