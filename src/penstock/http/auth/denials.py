"""Counts denied requests and writes them to the audit log once a minute."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.errors import Forbidden, PenstockError, RateLimited, Unauthenticated
from penstock.http.auth.principal import OWNER, Principal
from penstock.model.documents import AuditEntry
from penstock.rules.validation import replace_surrogates
from penstock.store import Store

COUNTED = (Forbidden, Unauthenticated, RateLimited)
MAX_ENTRIES = 1_000
MAX_TEXT_LENGTH = 200


class Denial(NamedTuple):
    tenant: str
    subject: str
    target: str
    code: str


class DenialLog:
    """Records the first denial of a kind at once, and the number of later ones each minute.

    So one caller, operation and outcome has one entry a minute.
    """

    name = "denial_log"
    every = 60.0

    def __init__(
        self, store: Store, nudge: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.store = store
        self.nudge = nudge
        self.counts: Counter[Denial] = Counter()
        self.clock = clock
        # When each kind was last recorded.
        self.recorded: dict[Denial, float] = {}

    def note(
        self, caller: Principal | None, scope: Mapping[str, Any], route: str, error: PenstockError
    ) -> None:
        """Records the route's template, because a requested path may contain a secret."""
        if not isinstance(error, COUNTED):
            return
        refusal = make_denial(caller, scope, route, error)
        if refusal not in self.counts and len(self.counts) >= MAX_ENTRIES:
            refusal = Denial(OWNER, "others", "", error.code)
        self.counts[refusal] += 1
        if refusal not in self.recorded and len(self.recorded) < MAX_ENTRIES:
            self.nudge()

    async def tick(self) -> float:
        now = self.clock()
        self.recorded = {each: at for each, at in self.recorded.items() if now - at < self.every}
        due = {each: n for each, n in self.counts.items() if each not in self.recorded}
        if not due:
            return self.every
        await self.store.record(
            [
                AuditEntry(
                    tenant=refusal.tenant,
                    subject=refusal.subject,
                    verb="refused",
                    target=refusal.target,
                    detail=f"{refusal.code} {count}",
                )
                for refusal, count in due.items()
            ]
        )
        self.recorded |= dict.fromkeys(due, now)
        self.counts -= Counter(due)
        return self.every


def make_denial(
    caller: Principal | None, scope: Mapping[str, Any], route: str, error: PenstockError
) -> Denial:
    client = scope.get("client")
    subject = caller.subject if caller else f"address {client[0] if client else '?'}"
    target = f"{scope['method']} {route}"[:MAX_TEXT_LENGTH]
    return Denial(
        caller.tenant if caller else OWNER, subject, replace_surrogates(target), error.code
    )
