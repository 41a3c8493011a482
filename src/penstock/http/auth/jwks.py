"""Fetches and caches the JSON Web Key Set of an issuer."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError
from structlog.typing import FilteringBoundLogger

from penstock.errors import IdentityUnavailable
from penstock.http.auth.issuer import fetch
from penstock.http.auth.rate_limit import TokenBucket

log: FilteringBoundLogger = structlog.get_logger()
CACHE_TTL_S = 300.0
# Fetches for unknown keys: a burst, then one per interval.
FETCH_BURST, FETCH_INTERVAL_S = 3, 30.0
MAX_KEYS, MOST_RETIRED = 100, 1_000
MIN_RSA_BITS = 2_048
KIND = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


class JsonWebKeySet:
    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.url = url
        self.clock = clock
        self.keys: list[dict[str, Any]] | None = None
        # Key ids that the issuer has removed. Their tokens are invalid, not unknown.
        self.retired: set[str] = set()
        self.fetched_at = -float("inf")
        self.allowance = TokenBucket(1 / FETCH_INTERVAL_S, FETCH_BURST, clock())
        # Numbers of the last fetch that began, and of the last one that succeeded.
        self.begun = self.succeeded = 0
        self.turn = asyncio.Lock()

    @property
    def stale(self) -> bool:
        return self.clock() - self.fetched_at > CACHE_TTL_S

    async def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """Returns None if the issuer has no such key. Raises IdentityUnavailable if unknown."""
        seen = self.begun
        if self.stale:
            await self.refresh()
        found = self.lookup(kid, algorithm)
        if found is None and not await self.fetch_after(seen) and kid not in self.retired:
            raise IdentityUnavailable(
                "token is signed with an unknown key, and the issuer's keys cannot be fetched now;"
                " try again"
            )
        return found or self.lookup(kid, algorithm)

    async def refresh(self) -> None:
        """Refreshes stale keys. Callers that arrive during a fetch use the cached keys."""
        if self.turn.locked() and self.keys is not None:
            return
        async with self.turn:
            if self.stale:
                await self.fetch()

    async def fetch_after(self, seen: int) -> bool:
        """Fetches unless a fetch began after number `seen`. True if such a fetch succeeded."""
        async with self.turn:
            if self.begun == seen:
                await self.fetch()
        return self.succeeded > seen

    async def fetch(self) -> None:
        """Fetches unless the rate limit is exhausted."""
        if self.allowance.take(self.clock()):
            self.begun += 1
            if await self.load():
                self.succeeded = self.begun

    async def load(self) -> bool:
        try:
            answer = await fetch("GET", self.url)
        except IdentityUnavailable as error:
            log.warning("jwks_fetch_failed", error=str(error), kept=len(self.keys or ()))
            return False
        keys = answer.get("keys") if isinstance(answer, dict) else None
        if not isinstance(keys, list):
            log.warning("jwks_invalid", url=self.url, kept=len(self.keys or ()))
            return False
        former = names_of(self.keys or [])
        self.keys = [key for key in keys[:MAX_KEYS] if isinstance(key, dict)]
        self.retired = (former | self.retired) - names_of(self.keys)
        if len(self.retired) > MOST_RETIRED:
            self.retired = former - names_of(self.keys)
        self.fetched_at = self.clock()
        return True

    def lookup(self, kid: str | None, algorithm: str) -> PyJWK | None:
        fitting = [
            key
            for key in self.keys or ()
            if key.get("kty") == KIND[algorithm[:2]]
            and key.get("alg", algorithm) == algorithm
            and key.get("use", "sig") == "sig"
            and (kid is None or key.get("kid") == kid)
        ]
        # Without a kid, several matching keys are ambiguous.
        return parse_key(fitting[0], algorithm) if len(fitting) == 1 else None


def names_of(keys: list[dict[str, Any]]) -> set[str]:
    return {key["kid"] for key in keys if isinstance(key.get("kid"), str)}


def parse_key(key: dict[str, Any], algorithm: str) -> PyJWK | None:
    try:
        found = PyJWK(key, algorithm)
    except (PyJWTError, ValueError, TypeError):
        return None
    bits = getattr(found.key, "key_size", MIN_RSA_BITS) if key["kty"] == "RSA" else MIN_RSA_BITS
    return found if bits >= MIN_RSA_BITS else None
