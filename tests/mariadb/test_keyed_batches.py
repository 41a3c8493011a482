"""Batches of keyed messages: nobody's open transaction breaks an order."""

from contextlib import closing

import anyio
import pytest

from penstock.model.message import Flag, Leased
from penstock.model.store_types import Completion, Entry
from penstock.stores.mariadb.store import MariaStore
from tests.mariadb.scenes import CAP, QUEUE, claim
from tests.servers.mariadb import MariaDB

pytestmark = pytest.mark.anyio

LOCK_SCHEDULED = "SELECT id FROM penstock_scheduled WHERE id = %s FOR UPDATE"


async def publish(store: MariaStore, *keys: str) -> list[int]:
    entries = [Entry(QUEUE, "test", b"", ordering_key=key, flags=Flag.KEYED) for key in keys]
    return [each.id for each in await store.enqueue(entries)]


async def complete(store: MariaStore, held: list[Leased]) -> list[str]:
    with anyio.fail_after(CAP):
        answers = await store.complete([Completion(each.id, each.fence) for each in held])
    return [answer.kind for answer in answers]


async def test_a_next_that_is_locked_is_not_overtaken(
    store: MariaStore, mariadb_server: MariaDB, url: str
) -> None:
    _, second, _, _, fifth = await publish(store, "a", "a", "a", "b", "b")
    held = await claim(store)
    with closing(mariadb_server.connect(url.rpartition("/")[2])) as other:
        other.begin()
        other.cursor().execute(LOCK_SCHEDULED, (second,))
        assert await complete(store, held) == ["busy", "done"]
        other.rollback()
    assert await complete(store, held[:1]) == ["done"]
    assert [leased.id for leased in await claim(store)] == [second, fifth]


async def test_a_large_keyed_batch_is_written_in_several_packets(store: MariaStore) -> None:
    body = bytes(1_000_000)
    entries = [Entry(QUEUE, "t", body, ordering_key=f"{n}", flags=Flag.KEYED) for n in range(12)]
    assert [each.code for each in await store.enqueue(entries)] == [None] * 12
    assert await complete(store, await claim(store)) == ["done"] * 12


async def test_plain_messages_beside_a_name_are_written_in_several_packets(
    store: MariaStore,
) -> None:
    body = bytes(1_000_000)
    entries = [Entry(QUEUE, "t", b"", name="only"), *[Entry(QUEUE, "t", body)] * 12]
    published = await store.enqueue(entries)
    assert [each.code for each in published] == [None] * 13
    assert [leased.id for leased in await claim(store)] == [each.id for each in published]
