"""What frees a key is settled one by one, and checks the fence there too."""

import msgspec
import pytest

from penstock.model.message import Flag, SettleReject
from penstock.model.settings import QueueSettings
from penstock.model.store_types import Entry, Lock
from penstock.rules.lifecycle import settle
from penstock.stores.postgres.store import PostgresStore
from tests.postgres.scenes import QUEUE, claim, places

pytestmark = pytest.mark.anyio


async def test_a_stale_fence_settles_no_message_with_a_key(store: PostgresStore) -> None:
    await store.enqueue([Entry(QUEUE, "test", b"", flags=Flag.KEYED, ordering_key="key")])
    (held,) = await claim(store)
    (lease,) = await store.leases([Lock(held.id, held.fence)])
    assert lease is not None
    move = settle(lease, SettleReject("no"), QueueSettings())
    assert move.frees
    (stale,) = await store.settle([msgspec.structs.replace(move, fence=held.fence + 1)])
    assert stale.kind == "lost"
    assert await places(store) == {"message": 1, "lease": 1}
    (done,) = await store.settle([move])
    assert done.kind == "done"
    assert await places(store) == {"message": 1, "dead": 1}
