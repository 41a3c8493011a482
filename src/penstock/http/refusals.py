"""Who was refused what: counted, and written down once a minute."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.checks import readable
from penstock.document import Act
from penstock.errors import Forbidden, PenstockError, RateLimited, Unauthenticated
from penstock.http.caller import OWNER, Caller
from penstock.store import Store

COUNTED = (Forbidden, Unauthenticated, RateLimited)
MOST = 1_000
LONGEST = 200


class Refusal(NamedTuple):
    tenant: str
    subject: str
    target: str
    code: str


class Refusals:
    """The first of a kind at once, how many came after it within the minute."""

    name = "refusal_recorder"
    every = 60.0

    def __init__(self, store: Store, nudge: Callable[[], None]) -> None:
        self.store = store
        self.nudge = nudge
        self.counts: Counter[Refusal] = Counter()
        self.seen: set[Refusal] = set()

    def note(
        self, caller: Caller | None, scope: Mapping[str, Any], route: str, error: PenstockError
    ) -> None:
        """The route is told by its template: what a request puts into its path may be a secret."""
        if not isinstance(error, COUNTED):
            return
        refusal = refusal_of(caller, scope, route, error)
        if refusal not in self.counts and len(self.counts) >= MOST:
            refusal = Refusal(OWNER, "others", "", error.code)
        self.counts[refusal] += 1
        if refusal not in self.seen and len(self.seen) < MOST:
            self.seen.add(refusal)
            self.nudge()

    async def tick(self) -> float:
        counts, self.counts = self.counts, Counter()
        if not counts:
            self.seen.clear()
            return self.every
        await self.store.record(
            [
                Act(
                    tenant=refusal.tenant,
                    subject=refusal.subject,
                    verb="refused",
                    target=refusal.target,
                    detail=f"{refusal.code} {count}",
                )
                for refusal, count in counts.items()
            ]
        )
        return self.every


def refusal_of(
    caller: Caller | None, scope: Mapping[str, Any], route: str, error: PenstockError
) -> Refusal:
    client = scope.get("client")
    subject = caller.subject if caller else f"address {client[0] if client else '?'}"
    target = f"{scope['method']} {route}"[:LONGEST]
    return Refusal(caller.tenant if caller else OWNER, subject, readable(target), error.code)
