"""Stores steps and signals in one statement each."""

from typing import Any

from msgspec.structs import asdict, replace

from penstock.errors import StoreBusy
from penstock.model.message import MICROS_PER_SECOND, State
from penstock.model.waiting import SignalAnswer, SignalDraft, StepRecord, StepSave
from penstock.rules.live_events import KEPT_S, LIVE_EVENT
from penstock.stores.sql.database import ServerDatabase
from penstock.stores.sql.steps import MAX_SIGNALS


async def save_step(database: ServerDatabase[Any, Any], item: StepSave) -> StepRecord | None:
    values = asdict(item.step)
    values |= {"id": item.id, "fence": item.fence, "consumes": item.consumes}
    try:
        rows = await database.fetch("step_save_leased", values)
    except StoreBusy:
        return None
    for position, at in rows:
        return replace(item.step, position=position, at=at, fence=item.fence)
    return None


async def signal_held(
    database: ServerDatabase[Any, Any], draft: SignalDraft
) -> SignalAnswer | None:
    values = {
        "id": draft.id,
        "name": draft.name,
        "body": draft.body,
        "limit": MAX_SIGNALS,
        "event": draft.event,
        "kind": LIVE_EVENT,
        "kept": KEPT_S * MICROS_PER_SECOND,
    }
    try:
        rows = await database.fetch("signal_held", values)
    except StoreBusy:
        return None
    for id, queue_id in rows:
        if queue_id is not None:
            database.notifier.notify({queue_id})
        return SignalAnswer(id, state=State.SCHEDULED, resumed=queue_id is not None)
    return None
