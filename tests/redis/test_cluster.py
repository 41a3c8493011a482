"""In a cluster one shard has the whole store; whichever node is named leads there."""

from collections.abc import Iterator

import anyio
import pytest

from penstock import stores
from tests.redis.scenes import CAP, claim, open_store, places, publish
from tests.servers.redis import Redis

pytestmark = pytest.mark.anyio
HALF, SLOTS = 8192, 16384


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Redis, Redis]]:
    """Two nodes, each with half of all slots."""
    with Redis({"cluster-enabled": "yes"}) as one, Redis({"cluster-enabled": "yes"}) as other:
        with one.connect() as outside:
            outside.execute_command("CLUSTER ADDSLOTS", *range(HALF))
            outside.execute_command("CLUSTER MEET", "127.0.0.1", other.port)
        with other.connect() as outside:
            outside.execute_command("CLUSTER ADDSLOTS", *range(HALF, SLOTS))
        yield one, other


async def agreed(nodes: tuple[Redis, Redis]) -> None:
    with anyio.fail_after(CAP):
        for node in nodes:
            while True:
                with node.connect() as outside:
                    if outside.execute_command("CLUSTER INFO")["cluster_state"] == "ok":
                        break
                await anyio.sleep(0.01)


@pytest.mark.parametrize("first", [0, 1])
async def test_whichever_node_is_named_leads_to_the_store(
    cluster: tuple[Redis, Redis], first: int
) -> None:
    await agreed(cluster)
    async with await open_store(cluster[first].url()) as store:
        await publish(store, 3)
        assert len(await claim(store, 2)) == 2
        found = await places(store)
    assert await stores.exists(cluster[1 - first].url())
    async with await open_store(cluster[1 - first].url()) as other:
        assert await places(other) == found
