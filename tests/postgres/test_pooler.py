"""Behind a pooler that keeps no session: no prepared statements, no settings, no listening."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import asyncpg
import pytest

from penstock.broker.local import Broker
from penstock.model.message import Draft
from penstock.model.store_types import Completion, Dedupe, Entry
from penstock.store import Check
from penstock.stores.notifier import POLL_INTERVAL_DEAF_S
from penstock.stores.postgres.connection import SETTINGS
from penstock.stores.postgres.store import SETTLE, PostgresStore, upgrade
from tests.postgres.scenes import (
    CAP,
    QUEUE,
    claim,
    connect,
    execute,
    open_store,
    places,
    publish,
    wait_until,
    with_options,
)
from tests.servers.places import free_port
from tests.servers.postgres import Postgres
from tests.servers.processes import end

pytestmark = pytest.mark.anyio

POOLER = {"pooler": "on"}
CONFIGURATION = """\
[databases]
* = host=127.0.0.1 port={server}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
default_pool_size = 4
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
logfile = {folder}/log
pidfile = {folder}/pid
"""


@pytest.fixture(scope="module")
def bouncer(postgres_server: Postgres) -> Iterator[int]:
    """The port of a PgBouncer, where one is installed."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("pgbouncer is not installed")
    port = free_port()
    process = subprocess.Popen(
        [program, "-q", str(configure(postgres_server, port))],
        stderr=subprocess.DEVNULL,
        # It does not run as root, either.
        user=postgres_server.user,
        group=postgres_server.user,
        extra_groups=None if postgres_server.user is None else [],
    )
    yield port
    end(signal.SIGTERM, [process.pid])
    process.wait()


def configure(server: Postgres, port: int) -> Path:
    """A file in a directory of the server's, which its user may write to."""
    folder = server.directory / "bouncer"
    folder.mkdir()
    text = CONFIGURATION.format(folder=folder, port=port, server=server.port)
    (folder / "ini").write_text(text)
    (folder / "users").write_text('"penstock" ""\n')
    if server.user is not None:
        shutil.chown(folder, server.user)
    return folder / "ini"


@pytest.fixture(params=["direct", "pgbouncer"])
async def pooled(request: pytest.FixtureRequest, url: str, postgres_server: Postgres) -> str:
    """The URL of the database by way of a pooler; or without one, but as if there were."""
    await upgrade(with_options(url, **POOLER))
    if request.param == "direct":
        return url
    port: int = request.getfixturevalue("bouncer")
    far = url.replace(f":{postgres_server.port}/", f":{port}/")
    await wait_until(lambda: answers(far))
    return far


async def answers(url: str) -> bool:
    try:
        connection = await asyncpg.connect(url, statement_cache_size=0)
    except (OSError, asyncpg.PostgresError):
        return False
    await connection.close()
    return True


async def test_a_store_behind_a_pooler_does_its_work(pooled: str) -> None:
    async with await open_store(pooled, **POOLER) as store:
        await asyncio.gather(*(publish(store, 5) for _ in range(20)))
        taken = [each for part in await drain_together(store) for each in part]
        assert len(set(taken)) == len(taken) == 100
        assert await places(store) == {"message": 100, "ended": 100}


async def drain_together(store: PostgresStore) -> list[list[int]]:
    return await asyncio.gather(*(drain(store) for _ in range(8)))


async def drain(store: PostgresStore) -> list[int]:
    mine: list[int] = []
    while taken := await claim(store, 5):
        done = await store.complete([Completion(each.id, each.fence) for each in taken])
        assert {answer.kind for answer in done} == {"done"}
        mine += [each.id for each in taken]
    return mine


async def test_keys_behind_a_pooler_are_decided_once(pooled: str) -> None:
    entry = Entry(QUEUE, "test", b"", dedup=Dedupe("window:same", b"digest", 60.0))
    async with await open_store(pooled, **POOLER) as store:
        outcomes = await asyncio.gather(*(store.enqueue([entry]) for _ in range(10)))
        published = [each for (each,) in outcomes if each.code is None]
        assert len({each.id for each in published}) == 1
        assert await places(store) == {"message": 1, "ready": 1}


async def test_who_is_behind_a_pooler_looks_often_and_tells_the_others(
    pooled: str, store: PostgresStore
) -> None:
    async with await open_store(pooled, **POOLER) as far:
        far.notifier.listen()
        assert far.notifier.longest_wait == POLL_INTERVAL_DEAF_S
        store.notifier.listen()
        with anyio.fail_after(CAP):
            while not store.notifier.hears:  # noqa: ASYNC110 - there is no event for it
                await anyio.sleep(0.005)
        heard = store.notifier.wait([QUEUE])
        await publish(far)
        await asyncio.wait_for(heard, CAP)


async def test_nothing_of_a_session_is_left_behind_for_the_next_one(pooled: str) -> None:
    async with await open_store(pooled, **POOLER) as store:
        await Broker(store).publish(Draft())
        await claim(store)
    async with connect(pooled) as other:
        assert await other.fetch("SELECT pg_listening_channels()") == []
        prepared = "SELECT 1 FROM pg_prepared_statements WHERE statement LIKE '%penstock.%'"
        assert len(await other.fetch(prepared)) <= 1, "the question itself"


async def sessions(store: PostgresStore) -> Check:
    (found,) = [check for check in await store.examine() if check.name == "sessions"]
    return found


async def test_settings_are_those_of_the_role(pooled: str) -> None:
    async with await open_store(pooled, **POOLER) as store:
        assert (await sessions(store)).ok


async def test_the_doctor_tells_of_settings_that_are_missing(url: str) -> None:
    async with await open_store(url, **POOLER) as store:
        found = await sessions(store)
        assert not found.ok
        assert "penstock migrate" in found.text
        assert "enable_seqscan" in found.text
    assert await upgrade(with_options(url, **POOLER)) == [SETTLE]
    async with await open_store(url, **POOLER) as store:
        assert (await sessions(store)).ok
    assert await upgrade(with_options(url, **POOLER), plan=True) == []


async def test_settings_of_the_role_are_for_this_database_only(url: str, bare: str) -> None:
    await upgrade(with_options(url, **POOLER))
    name = next(iter(SETTINGS))
    here, elsewhere = [await execute(each, f"SHOW {name}") for each in (url, bare)]
    assert here[0][0] == SETTINGS[name]
    assert elsewhere[0][0] != SETTINGS[name]
