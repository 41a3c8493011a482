"""Denied requests in the audit log: one entry for each kind a minute, with their number."""

import pytest

from penstock import stores
from penstock.errors import Forbidden
from penstock.http.auth.denials import DenialLog
from penstock.http.auth.principal import Principal
from penstock.rules.access import Access

pytestmark = pytest.mark.anyio


async def test_denials_of_a_kind_are_folded_into_one_entry_a_minute() -> None:
    now = 0.0
    async with await stores.open("sqlite://") as store:
        log = DenialLog(store, lambda: None, lambda: now)
        ada = Principal("key:1", "default", Access([]))

        async def deny(times: int, route: str) -> list[tuple[str, str]]:
            for _ in range(times):
                log.note(ada, {"method": "POST"}, route, Forbidden("no"))
            await log.tick()
            return [(act.target, act.detail) for act in await store.acts(limit=100)][::-1]

        assert await deny(1, "/v1/redrive") == [("POST /v1/redrive", "FORBIDDEN 1")]
        assert len(await deny(5, "/v1/redrive")) == 1
        now = 30.0
        # Another kind is recorded at once, and brings no entry of the first one.
        assert len(await deny(1, "/v1/queues")) == 2
        now = 61.0
        assert await deny(2, "/v1/redrive") == [
            ("POST /v1/redrive", "FORBIDDEN 1"),
            ("POST /v1/queues", "FORBIDDEN 1"),
            ("POST /v1/redrive", "FORBIDDEN 7"),
        ]
