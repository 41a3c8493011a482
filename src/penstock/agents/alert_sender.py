"""Sends alerts about open anomalies to webhooks."""

import secrets
from collections.abc import Sequence

import msgspec
import structlog
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from penstock.broker.alerts import is_due, list_alerts, read_alert_state, save_alert_state
from penstock.broker.anomalies import read_open
from penstock.broker.queue_cache import QueueCache
from penstock.broker.webhook_secrets import WebhookSecrets
from penstock.model.alerts import Alert, AlertState, NoticeType, PendingNotice
from penstock.model.anomalies import Anomaly
from penstock.model.message import MICROS_PER_SECOND, Moment
from penstock.rules.alerts import (
    MAX_DESCRIBED,
    describe_case,
    find_new,
    find_resolved,
    format_line,
    is_selected,
    make_text,
    note_opened,
    note_refused,
    note_sent,
    split_subject,
)
from penstock.store import Store
from penstock.webhooks.sender import WebhookRequest, WebhookSender
from penstock.wire.fields import to_datetime

# How long one server has to send a notice before another one tries.
SENDING_S = 60
log: FilteringBoundLogger = structlog.get_logger()
encode = msgspec.json.Encoder().encode


class AlertSender:
    name = "alert_sender"
    every = 2.0

    def __init__(self, store: Store, directory: QueueCache, sender: WebhookSender) -> None:
        self.store = store
        self.directory = directory
        self.sender = sender
        self.signing = WebhookSecrets(store)

    async def tick(self) -> float:
        """Looks at every alert. Without alerts, nothing else is read."""
        alerts = await list_alerts(self.store)
        if not alerts:
            return self.every
        found = await read_open(self.store, self.directory)
        for alert in alerts:
            await self.deliver_due(alert, found)
        return self.every

    async def deliver_due(self, alert: Alert, found: Sequence[Anomaly]) -> None:
        now = await self.store.now()
        state, version = await read_alert_state(self.store, alert)
        seen = {each.subject: each for each in found if is_visible(alert, each)}
        first_seen = {subject: each.first_at for subject, each in seen.items()}
        changed = replace(state, opened=note_opened(alert, state, first_seen))
        if state.pending is None:
            changed = self.decide(alert, changed, seen, {each.subject for each in found}, now)
        if changed != state:
            if not await save_alert_state(self.store, alert, changed, version):
                return
            state, version = changed, version + 1
        if is_due(state, now):
            await self.send(alert, state, version, now)

    def decide(
        self,
        alert: Alert,
        state: AlertState,
        seen: dict[str, Anomaly],
        open_subjects: set[str],
        now: Moment,
    ) -> AlertState:
        """Returns the state with a new notice, or as it is if there is nothing to report."""
        if state.test_requested:
            pending = make_notice("alert.test", alert, [], [], now)
            return replace(state, pending=pending, test_requested=False)
        first_seen = {subject: each.first_at for subject, each in seen.items()}
        if new := find_new(alert, state, first_seen, now):
            reported = state.reported | dict.fromkeys(new, now)
            cases = [seen[subject] for subject in new]
            pending = make_notice("alert.firing", alert, cases, [], now)
            return replace(state, pending=pending, reported=reported, last_fired_at=now)
        if gone := find_resolved(state, open_subjects):
            reported = {name: at for name, at in state.reported.items() if name not in gone}
            pending = make_notice("alert.resolved", alert, [], gone, now)
            return replace(state, pending=pending, reported=reported)
        return state

    async def send(self, alert: Alert, state: AlertState, version: int, now: Moment) -> None:
        """Takes the notice before it is sent, so that one of several servers sends it."""
        pending = state.pending
        if pending is None:
            return
        taken = replace(state, pending=replace(pending, due_at=now + SENDING_S * MICROS_PER_SECOND))
        if not await save_alert_state(self.store, alert, taken, version):
            return
        valid = (await self.signing.secrets(alert.tenant)).valid
        request = WebhookRequest(alert.url, pending.id, pending.body.encode(), valid)
        result = await self.sender.post(request)
        now = await self.store.now()
        if result.good:
            after = note_sent(taken, now)
        else:
            after = note_refused(taken, str(result), now)
            log.warning("alert_delivery_failed", alert=alert.name, response=str(result))
        await save_alert_state(self.store, alert, after, version + 1)


def is_visible(alert: Alert, anomaly: Anomaly) -> bool:
    """True if the alert is about the anomaly's scope, or about the store, and selects it."""
    if anomaly.muted:
        return False
    ours = (anomaly.tenant, anomaly.scope) == (alert.tenant, alert.scope)
    of_store = anomaly.tenant == "" and alert.tenant == "default"
    return (ours or of_store) and is_selected(alert, anomaly.kind, anomaly.severity, anomaly.queue)


def make_notice(
    type: NoticeType, alert: Alert, cases: list[Anomaly], gone: list[str], now: Moment
) -> PendingNotice:
    cases = sorted(cases, key=lambda each: (each.severity != "critical", -each.last_at))
    lines = [format_line(each) for each in cases[:MAX_DESCRIBED]]
    lines += [split_subject(each) for each in gone[:MAX_DESCRIBED]]
    total = len(cases) + len(gone)
    body = {
        "type": type,
        "timestamp": to_datetime(now),
        "text": make_text(type, alert.name, lines, total),
        "data": {
            "alert": alert.name,
            "scope": alert.scope,
            "total": total,
            "anomalies": [describe_case(each) for each in cases[:MAX_DESCRIBED]],
            "resolved": [split_subject(each) for each in gone[:MAX_DESCRIBED]],
        },
    }
    return PendingNotice(f"alert-{secrets.token_hex(12)}", type, encode(body).decode(), due_at=now)
