"""A call that is done in two steps, of which the second one fails: the first is not denied."""

from collections.abc import AsyncIterator

import pytest

from penstock.errors import OutcomeUnknown
from penstock.model.message import Flag
from penstock.model.store_types import AnswerKind, Completion, Entry, Extension
from penstock.stores.postgres.store import PostgresStore
from tests.postgres.scenes import QUEUE, claim, connect, open_store, publish
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.anyio

# How a transaction begins that looks at one message after the set is done.
SECOND_STEP = b"SET LOCAL lock_timeout = 250"
HOLD = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"


@pytest.fixture
async def proxy(postgres_server: Postgres) -> AsyncIterator[Proxy]:
    async with Proxy(postgres_server.port) as proxy:
        yield proxy


@pytest.fixture
async def far(url: str, proxy: Proxy) -> AsyncIterator[PostgresStore]:
    async with await open_store(proxy.url(url)) as store:
        yield store


def make_keyed(key: str = "key") -> Entry:
    """One whose end frees a key: it is looked at by itself."""
    return Entry(QUEUE, "test", b"", ordering_key=key, flags=Flag.KEYED)


async def both_claimed(store: PostgresStore) -> list[Completion]:
    """A plain one and one with a key."""
    await publish(store)
    await store.enqueue([make_keyed()])
    return [Completion(each.id, each.fence) for each in await claim(store)]


async def test_what_a_set_completed_is_not_denied_if_the_rest_is_cut_off(
    far: PostgresStore, proxy: Proxy
) -> None:
    items = await both_claimed(far)
    proxy.cut_before_request(SECOND_STEP)
    with pytest.raises(OutcomeUnknown):
        await far.complete(items)
    kinds = [answer.kind for answer in await far.complete(items)]
    assert kinds == [AnswerKind.ALREADY, AnswerKind.DONE]


async def test_what_a_set_extended_is_not_denied_if_the_rest_is_cut_off(
    far: PostgresStore, proxy: Proxy
) -> None:
    first, second = await both_claimed(far)
    await far.complete([second])
    proxy.cut_before_request(SECOND_STEP)
    with pytest.raises(OutcomeUnknown):
        await far.extend([Extension(each.id, each.fence, 60.0) for each in (first, second)])


async def test_whoever_is_in_the_way_of_one_completion_is_in_the_way_of_no_other(
    store: PostgresStore, url: str
) -> None:
    items = await both_claimed(store)
    async with connect(url) as somebody, somebody.transaction():
        await somebody.execute(HOLD, f"penstock key {QUEUE} key")
        kinds = [answer.kind for answer in await store.complete(items)]
    assert kinds == [AnswerKind.DONE, AnswerKind.BUSY]
    assert [answer.kind for answer in await store.complete(items[1:])] == [AnswerKind.DONE]


async def test_what_is_claimed_is_handed_out_even_if_clearing_up_is_cut_off(
    far: PostgresStore, proxy: Proxy
) -> None:
    await far.enqueue([Entry(QUEUE, "test", b"", ttl=0.001)])
    (id,) = await publish(far)
    # Ended ones are told apart from others by their verb.
    struck = proxy.cut_before_request(b"'expire'")
    assert [each.id for each in await claim(far)] == [id]
    assert struck.is_set()
