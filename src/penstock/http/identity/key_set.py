"""The public keys of an issuer: the last good set, asked for again now and then."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import structlog
from jwt import PyJWK
from jwt.exceptions import PyJWTError
from structlog.typing import FilteringBoundLogger

from penstock.errors import IdentityUnavailable
from penstock.http.identity.fetching import fetch

log: FilteringBoundLogger = structlog.get_logger()
FRESH = 300.0
# Neither a flood of unknown keys nor an issuer in trouble is asked more often.
PAUSE = 30.0
MOST_KEYS = 100
LEAST_RSA_BITS = 2_048
KIND = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}


class KeySet:
    def __init__(self, url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.url = url
        self.clock = clock
        self.keys: list[dict[str, Any]] | None = None
        self.fetched_at = self.tried_at = -float("inf")
        self.turn = asyncio.Lock()

    async def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        if self.clock() - self.fetched_at > FRESH:
            await self.refresh()
        found = self.lookup(kid, algorithm)
        if found is None:
            await self.refresh()
            found = self.lookup(kid, algorithm)
        return found

    async def refresh(self) -> None:
        """Whoever comes while it is asked for goes by the set there is."""
        if self.turn.locked() and self.keys is not None:
            return
        async with self.turn:
            if self.clock() - self.tried_at > PAUSE:
                self.tried_at = self.clock()
                await self.load()
        if self.keys is None:
            raise IdentityUnavailable(f"the keys of the issuer at {self.url} are not known yet")

    async def load(self) -> None:
        try:
            answer = await fetch("GET", self.url)
        except IdentityUnavailable as error:
            log.warning("key_set_unavailable", error=str(error), kept=len(self.keys or ()))
            return
        keys = answer.get("keys") if isinstance(answer, dict) else None
        if not isinstance(keys, list):
            log.warning("key_set_unreadable", url=self.url, kept=len(self.keys or ()))
            return
        self.keys = [key for key in keys[:MOST_KEYS] if isinstance(key, dict)]
        self.fetched_at = self.clock()

    def lookup(self, kid: str | None, algorithm: str) -> PyJWK | None:
        fitting = [
            key
            for key in self.keys or ()
            if key.get("kty") == KIND[algorithm[:2]]
            and key.get("alg", algorithm) == algorithm
            and key.get("use", "sig") == "sig"
            and (kid is None or key.get("kid") == kid)
        ]
        # Which of several is meant, nobody says.
        return usable(fitting[0], algorithm) if len(fitting) == 1 else None


def usable(key: dict[str, Any], algorithm: str) -> PyJWK | None:
    try:
        found = PyJWK(key, algorithm)
    except (PyJWTError, ValueError, TypeError):
        return None
    bits = getattr(found.key, "key_size", LEAST_RSA_BITS) if key["kty"] == "RSA" else LEAST_RSA_BITS
    return found if bits >= LEAST_RSA_BITS else None
