"""A lake that schema version 1 wrote, and the store whose history it holds.

The files in `version_1_lake/` were extracted from that store, in batches of three rows, by the
last code that wrote version 1. Do not write them anew.
"""

import asyncio
import shutil
from pathlib import Path

import msgspec

from penstock import stores
from penstock.broker.local import Broker
from penstock.model.message import Draft, Fail
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.store_access import make_identity, use_store
from penstock.testing.simulation import ManualClock

FILES = Path(__file__).parent / "version_1_lake"


async def fill_store(url: str) -> None:
    """Six messages, half of them delayed: three are completed and one fails."""
    clock = ManualClock()
    async with await stores.open(url, clock=clock) as store:
        broker = Broker(store)
        await broker.admin.create_queue("mail")
        await broker.publish_many([draft_of(n) for n in range(6)])
        clock.advance(90)
        await store.promote(100)
        taken = await broker.claim("mail", consumer="c1", limit=4)
        for message in taken.messages[:3]:
            clock.advance(1)
            await broker.complete(message)
        await broker.settle(taken.messages[3], Fail("broken"))


def draft_of(n: int) -> Draft:
    delay, ttl = 60.0 * (n % 2), 3_600 if n > 3 else None
    return Draft(queue="mail", body=b'{"n":%d}' % n, labels={"n": str(n)}, delay=delay, ttl=ttl)


def copy_lake(folder: Path) -> tuple[str, Path]:
    """A store like the one of then, and the lake, which takes that store for its own."""
    url, lake = f"sqlite:///{folder / 'store.db'}", folder / "lake"
    asyncio.run(fill_store(url))
    shutil.copytree(FILES, lake)
    label = msgspec.structs.replace(
        lakes.find(str(lake)).label, store=use_store(url, make_identity)
    )
    (lake / lakes.LABEL).write_bytes(msgspec.json.encode(label))
    place = lakes.find(str(lake))
    use_store(url, lambda store: store.save_cursor(place.cursor_name, place.end))
    return url, lake
