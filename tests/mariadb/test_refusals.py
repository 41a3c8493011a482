"""A server that cannot be used is said to be, in our words, with what to do about it."""

import re

import pytest

from penstock import stores
from penstock.errors import InvalidInput, StoreError, StoreUnreachable, StoreUnusable
from penstock.model.store_types import Claim, Completion, Cursor, Entry
from penstock.stores.mariadb.connection import refuse_other
from penstock.stores.mariadb.schema import MIGRATIONS
from penstock.stores.mariadb.store import MariaStore
from tests.servers.mariadb import GUARDED, PASSWORD, SMALL, MariaDB
from tests.servers.places import free_port
from tests.servers.proxy import Link, Proxy

pytestmark = pytest.mark.anyio


async def refusal(url: str) -> StoreError:
    with pytest.raises(StoreError) as caught:
        await stores.open(url)
    return caught.value


async def test_a_wrong_password_is_said_and_not_repeated(mariadb_server: MariaDB) -> None:
    error = await refusal(mariadb_server.url("x", GUARDED, "wrong"))
    assert isinstance(error, StoreUnusable)
    assert "Access denied" in str(error)
    assert "wrong" not in str(error)


async def test_a_password_may_hold_anything(mariadb_server: MariaDB, url: str) -> None:
    name, word = url.rpartition("/")[2], PASSWORD.replace(" ", "%20")
    async with await stores.open(mariadb_server.url(name, GUARDED, word)) as store:
        assert await store.now() > 0


async def test_a_missing_database_is_named(mariadb_server: MariaDB) -> None:
    error = await refusal(mariadb_server.url("nowhere"))
    assert isinstance(error, StoreUnusable)
    assert "Unknown database 'nowhere'" in str(error)


async def test_a_server_that_is_not_there_can_be_tried_again() -> None:
    error = await refusal(f"mariadb://penstock@127.0.0.1:{free_port()}/queue")
    assert isinstance(error, StoreUnreachable)
    assert "cannot be reached" in str(error)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("?durability=sometimes", "durability must be safe or fast"),
        ("?pool_size=1", "pool_size must be a number from 2 to 1000"),
        ("?speed=high", "no option named speed"),
        ("/deeper", "name one database"),
    ],
)
async def test_an_option_that_makes_no_sense_is_named(url: str, end: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        await stores.open(url + end)


class Posing(Proxy):
    """Before a MariaDB that says it is a MySQL."""

    async def pass_on(self, link: Link, what: str, chunk: bytes) -> None:
        await super().pass_on(link, what, VERSION.sub(as_long, chunk))


VERSION = re.compile(rb"5\.5\.5-[\w.~+-]*MariaDB[\w.~+-]*")


def as_long(found: re.Match[bytes]) -> bytes:
    return b"8.0.36".ljust(len(found[0]), b" ")


async def test_mysql_is_another_server_and_told_so(mariadb_server: MariaDB, url: str) -> None:
    async with Posing(mariadb_server.port) as proxy:
        error = await refusal(proxy.url(url).replace("mariadb:", "mysql:"))
    assert isinstance(error, StoreUnusable)
    assert re.search(r"the server is MySQL 8\.0\.36 *; Penstock needs MariaDB", str(error))


@pytest.mark.parametrize("version", ["5.5.5-10.3.39-MariaDB", "10.5.27-MariaDB-log"])
async def test_an_old_server_is_refused(version: str) -> None:
    with pytest.raises(StoreUnusable, match=r"10\.6 or newer"):
        refuse_other("mariadb://host/name", version)


@pytest.mark.parametrize("version", ["5.5.5-10.11.6-MariaDB", "10.6.1-MariaDB", "11.4.2-MariaDB"])
async def test_a_new_one_is_not(version: str) -> None:
    refuse_other("mariadb://host/name", version)


async def test_the_scheme_of_mysql_is_taken_for_a_mariadb(url: str) -> None:
    async with await stores.open(url.replace("mariadb:", "mysql:")) as store:
        assert store.capabilities.engine == "mariadb"


async def test_a_server_that_would_lose_messages_is_for_fast_only_and_the_doctor_tells() -> None:
    with MariaDB(SMALL | {"innodb-flush-log-at-trx-commit": "2"}) as server:
        url = server.create_database()
        error = await refusal(url)
        assert isinstance(error, StoreUnusable)
        assert "innodb_flush_log_at_trx_commit = 2" in str(error)
        assert "durability=fast" in str(error)
        async with await stores.open(f"{url}?durability=fast") as store:
            assert store.capabilities.durability == "fast"
            found = {check.name: check for check in await store.examine()}
    assert not found["durability"].ok


async def test_a_server_with_nothing_wrong_is_well(store: MariaStore) -> None:
    assert [check.name for check in await store.examine() if not check.ok] == []


async def test_a_batch_of_large_bodies_is_written_in_pieces(store: MariaStore) -> None:
    entries = [Entry(2, "t", bytes(3_000_000)) for _ in range(4)]
    published = await store.enqueue(entries)
    assert len({each.id for each in published}) == 4


async def test_a_body_that_no_packet_holds_is_refused_and_nothing_else(store: MariaStore) -> None:
    with pytest.raises(InvalidInput, match="max_allowed_packet"):
        await store.enqueue([Entry(2, "t", bytes(9_000_000))])
    assert [each.id > 0 for each in await store.enqueue([Entry(2, "t", b"")])] == [True]


async def test_what_migrate_would_do_is_nothing_after_opening(url: str) -> None:
    steps = [f"migration {each.number} {each.name}" for each in MIGRATIONS]
    assert await stores.migrate(url, plan=True) == steps
    assert await stores.migrate(url) == steps
    assert await stores.migrate(url) == []
    async with await stores.open(url) as store:
        assert await store.queues()


async def test_the_rights_of_an_ordinary_user_are_enough(mariadb_server: MariaDB, url: str) -> None:
    name = url.rpartition("/")[2]
    mariadb_server.execute(
        "CREATE OR REPLACE USER ordinary@'127.0.0.1' IDENTIFIED BY '';"
        " GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX"
        f" ON {name}.* TO ordinary@'127.0.0.1'"
    )
    async with await stores.open(mariadb_server.url(name, "ordinary")) as store:
        await store.enqueue([Entry(2, "t", b"")])
        (leased,) = (await store.claim(Claim((2,), "tester"))).messages
        await store.complete([Completion(leased.id, leased.fence)])
        feed = await store.feed(Cursor(), 10)
    assert ([each.id for each in feed.messages], len(feed.history)) == ([leased.id], 1)
