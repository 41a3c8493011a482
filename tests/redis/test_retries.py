"""Bounds of the retries of Redis: a store that keeps moving or changing is left after so many."""

from typing import Any

import pytest
from redis.exceptions import MovedError

from penstock.errors import StoreBusy, StoreError
from penstock.retry_policies import MOVED, QUEUE_CHANGE
from penstock.stores.redis.connection import RedisConnection
from penstock.stores.redis.queues import retry_changed
from penstock.stores.redis.store import RedisStore

pytestmark = pytest.mark.anyio


async def test_a_store_that_keeps_moving_is_followed_so_often(store: RedisStore) -> None:
    options = store.database.address.options
    moved: list[RedisConnection] = []

    async def ask(session: RedisConnection) -> Any:
        moved.append(session)
        raise MovedError(f"1 {options['host']}:{options['port']}")

    with pytest.raises(StoreError):
        await store.database.call(ask)
    assert len(moved) == MOVED.attempts


async def test_a_queue_that_keeps_changing_is_changed_so_often() -> None:
    tries: list[None] = []

    async def change() -> bytes:
        tries.append(None)
        return b"again"

    with pytest.raises(StoreBusy, match="queue 7 is being changed"):
        await retry_changed(7, change)
    assert 2 <= len(tries) <= QUEUE_CHANGE.attempts


async def test_a_change_after_a_concurrent_one_succeeds() -> None:
    answers = [b"done", b"again", b"again"]

    async def change() -> bytes:
        return answers.pop()

    assert await retry_changed(7, change) == b"done"
