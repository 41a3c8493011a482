"""Limits what callers hold at a time, and how much of it one caller and one tenant may hold."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import TooManyWaiting
from penstock.http.auth.principal import Principal

# One caller may hold a quarter of a limit, and the callers of one tenant half of it.
CALLER_PART = 4
TENANT_PART = 2


class Quota:
    """Counts one kind of thing, such as event streams, that the server holds for its callers.

    Callers share the limit on a server that asks for credentials. Without them there is one caller,
    and it may have everything.
    """

    def __init__(self, noun: str, limit: int, *, shared: bool) -> None:
        self.noun = noun
        self.limit = limit
        self.shared = shared
        self.total = 0
        # Counts per tenant and per caller. Only names of callers contain a slash.
        self.held: Counter[str] = Counter()

    def take(self, caller: Principal, amount: int = 1) -> None:
        self._check("this server", self.total + amount, self.limit)
        if self.shared:
            tenant, holder = caller.tenant, caller.holder
            self._check("a caller", self.held[holder] + amount, self.limit // CALLER_PART)
            self._check("a tenant", self.held[tenant] + amount, self.limit // TENANT_PART)
            self.held[tenant] += amount
            self.held[holder] += amount
        self.total += amount

    def _check(self, who: str, wanted: int, limit: int) -> None:
        if wanted > max(1, limit):
            raise TooManyWaiting(f"{who} may have {max(1, limit)} {self.noun} at a time")

    def release(self, caller: Principal, amount: int = 1) -> None:
        self.total -= amount
        if self.shared:
            for name in (caller.tenant, caller.holder):
                self.held[name] -= amount
                if not self.held[name]:
                    del self.held[name]

    @contextmanager
    def hold(self, caller: Principal, amount: int = 1) -> Iterator[None]:
        self.take(caller, amount)
        try:
            yield
        finally:
            self.release(caller, amount)
