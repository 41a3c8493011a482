"""Stores alerts and what was sent of them."""

import re
from collections.abc import Collection

import msgspec
from msgspec.structs import replace

from penstock.broker.anomalies import refuse_unknown
from penstock.errors import Busy, Conflict, InvalidInput, NotFound, Refused
from penstock.model.alerts import Alert, AlertState, AlertStatus
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.message import Moment
from penstock.retry_policies import DOCUMENT_SAVE_ATTEMPTS
from penstock.rules.callbacks import check_url
from penstock.store import Store

ALERT, ALERT_STATE = "alert", "alert_state"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_ALERTS = 200
MAX_SELECTED = 100
MAX_DURATION_S = 7 * 86_400.0
SEVERITY_NAMES = ("info", "warning", "critical")
encode = msgspec.json.Encoder().encode
decode_alert = msgspec.json.Decoder(Alert).decode
decode_state = msgspec.json.Decoder(AlertState).decode


class Alerts:
    """The alerts of one tenant."""

    def __init__(self, store: Store, tenant: str) -> None:
        self.store = store
        self.tenant = tenant

    async def add(
        self,
        name: str,
        url: str,
        *,
        kinds: Collection[str] = (),
        severities: Collection[str] = (),
        queues: Collection[str] = (),
        min_duration: float = 0.0,
        cooldown: float = 300.0,
        scope: str = "default",
    ) -> Alert:
        """Creates an alert. Raises Conflict if the name is taken."""
        alert = Alert(
            name=name,
            tenant=self.tenant,
            scope=scope,
            url=url,
            kinds=tuple(kinds),
            severities=tuple(severities),
            queues=tuple(queues),
            min_duration=min_duration,
            cooldown=cooldown,
            created_at=await self.store.now(),
        )
        check_alert(alert)
        await refuse_unknown(self.store, alert.kinds)
        if len(await self.store.documents(ALERT, limit=MAX_ALERTS)) >= MAX_ALERTS:
            raise Refused(f"the store has {MAX_ALERTS} alerts already; delete one first")
        document = Document(kind=ALERT, name=self.key(name, scope), body=encode(alert), version=0)
        if await self.store.advance(Change(guards=(document,))) is None:
            raise Conflict(f"alert {name!r} already exists; delete it first")
        return alert

    def key(self, name: str, scope: str) -> str:
        return f"{self.tenant}/{scope}/{name}"

    async def list(self, *, scope: str = "default") -> list[AlertStatus]:
        found = await list_alerts(self.store)
        ours = [each for each in found if (each.tenant, each.scope) == (self.tenant, scope)]
        return [AlertStatus(each, (await read_alert_state(self.store, each))[0]) for each in ours]

    async def get(self, name: str, *, scope: str = "default") -> AlertStatus:
        found = await self.store.document(ALERT, self.key(name, scope))
        if found is None:
            raise NotFound(f"no alert named {name[:64]!r}")
        alert = decode_alert(found.body)
        return AlertStatus(alert, (await read_alert_state(self.store, alert))[0])

    async def delete(self, name: str, *, scope: str = "default") -> None:
        key = self.key(name, scope)
        await self.get(name, scope=scope)
        await self.store.advance(Change(deletes=((ALERT, key), (ALERT_STATE, key))))

    async def test(self, name: str, *, scope: str = "default") -> None:
        """Requests a test notice, which a server sends within seconds."""
        alert = (await self.get(name, scope=scope)).alert
        for _ in range(DOCUMENT_SAVE_ATTEMPTS):
            state, version = await read_alert_state(self.store, alert)
            asked = replace(state, test_requested=True)
            if await save_alert_state(self.store, alert, asked, version):
                return
        raise Busy(f"alert {name!r} is being changed by another process; try again")


def check_alert(alert: Alert) -> None:
    if not NAME.fullmatch(alert.name):
        raise InvalidInput(
            f"alert name {alert.name[:80]!r} is invalid; use up to 64 letters, digits, . _ or -"
        )
    check_url("url", alert.url)
    for severity in alert.severities:
        if severity not in SEVERITY_NAMES:
            raise InvalidInput(
                f"unknown severity {severity[:40]!r}; use {', '.join(SEVERITY_NAMES)}"
            )
    for name in ("kinds", "severities", "queues"):
        if len(getattr(alert, name)) > MAX_SELECTED:
            raise InvalidInput(f"{name} has more than {MAX_SELECTED} entries")
    for name in ("min_duration", "cooldown"):
        if not 0 <= getattr(alert, name) <= MAX_DURATION_S:
            raise InvalidInput(f"{name} must be from 0 to {MAX_DURATION_S:g} seconds")


async def list_alerts(store: Store) -> list[Alert]:
    return [decode_alert(each.body) for each in await store.documents(ALERT, limit=MAX_ALERTS)]


def make_key(alert: Alert) -> str:
    return f"{alert.tenant}/{alert.scope}/{alert.name}"


async def read_alert_state(store: Store, alert: Alert) -> tuple[AlertState, int]:
    found = await store.document(ALERT_STATE, make_key(alert))
    return (AlertState(), 0) if found is None else (decode_state(found.body), found.version or 0)


async def save_alert_state(store: Store, alert: Alert, state: AlertState, version: int) -> bool:
    """Returns False if another process saved it, or deleted the alert."""
    key = make_key(alert)
    found = await store.document(ALERT, key)
    if found is None:
        return False
    document = Document(kind=ALERT_STATE, name=key, body=encode(state), version=version)
    standing = ((ALERT, key, found.version or 0),)
    return await store.advance(Change(guards=(document,), expects=standing)) is not None


def is_due(state: AlertState, now: Moment) -> bool:
    return state.pending is not None and state.pending.due_at <= now
