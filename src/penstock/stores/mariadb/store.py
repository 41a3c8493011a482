"""Opens, creates and migrates a MariaDB store by its URL."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from penstock.errors import InvalidInput, StoreUnusable
from penstock.extras import require_extra
from penstock.retry_policies import MIGRATION_CHECK, Retries
from penstock.store import Capabilities, Clock
from penstock.stores.mariadb.connection import (
    CALL_TIMEOUT_S,
    MariaConnection,
    MariaDsn,
    MariaPool,
    parse,
)
from penstock.stores.mariadb.dialect import MariaDialect
from penstock.stores.mariadb.errors import ERRORS, translate_error
from penstock.stores.mariadb.notifier import LocalWakeups, ReadyProbe
from penstock.stores.mariadb.schema import (
    build_type_index,
    find_missing,
    lacks_type_index,
    migrate,
    read_applied,
    refuse_incomplete,
)
from penstock.stores.mariadb.statement import fill_statement
from penstock.stores.mariadb.transaction import MariaDriver, MariaTransaction
from penstock.stores.migrations import Migration
from penstock.stores.sql.database import ServerDatabase
from penstock.stores.sql.server_verbs import ServerVerbs
from penstock.stores.sql.store import SqlStore

if TYPE_CHECKING:
    from penstock.stores.mariadb.redis_notifier import RedisPubSub

Waiting: TypeAlias = "ReadyProbe | RedisPubSub"
MariaStore: TypeAlias = (
    "SqlStore[ServerDatabase[MariaConnection, MariaTransaction], Waiting, MariaDialect]"
)
# Server settings under which a commit survives a power failure.
NEEDED = {"innodb_flush_log_at_trx_commit": 1, "innodb_doublewrite": 1}
INDEX = "index type"


async def open_store(url: str, *, clock: Clock | None = None) -> MariaStore:
    if clock is not None:
        raise InvalidInput("a MariaDB store uses the server's clock")
    return await open_at(parse(url))


async def open_at(address: MariaDsn) -> MariaStore:
    async with fit_session(address) as session:
        if not await read_applied(session):
            await migrate(session, address.moment)
        elif to_do := await wait_for_migrations(session):
            names = ", ".join(migration.name for migration in to_do)
            raise StoreUnusable(f"{names} must be applied first; run penstock migrate")
        await refuse_incomplete(session)
        ((seal,),) = await session.rows(fill_statement("fact", name="secret"))
    return make_store(address, seal)


def make_store(address: MariaDsn, seal: str) -> MariaStore:
    wakeups = LocalWakeups(seal)
    notifier = make_notifier(address, seal, wakeups)
    # Without Redis, a commit carries the statements that wake waiters.
    notices = wakeups.ring if address.wake is None else send_no_notices
    driver = MariaDriver(address.where, address.moment, notices)
    database: ServerDatabase[MariaConnection, MariaTransaction] = ServerDatabase(
        address.where,
        Capabilities("mariadb", address.durability),
        MariaPool(address.connect, address.pool_size, CALL_TIMEOUT_S),
        driver,
        notifier,
    )
    dialect = MariaDialect(database, driver, notifier, address, seal)
    return SqlStore(database, notifier, dialect, ServerVerbs(database, dialect))


def send_no_notices(queue_ids: Collection[int]) -> list[str]:
    return []


def make_notifier(address: MariaDsn, seal: str, wakeups: LocalWakeups) -> Waiting:
    if address.wake is None:
        return ReadyProbe(address.connect, wakeups)
    with require_extra("redis"):
        from penstock.stores.mariadb.redis_notifier import RedisPubSub
    return RedisPubSub(address.connect, address.wake, seal, wakeups)


async def wait_for_migrations(session: MariaConnection) -> list[Migration]:
    """Waits for another process that is creating or migrating the store."""
    retries: Retries | None = None
    while to_do := await find_missing(session):
        retries = retries or MIGRATION_CHECK.begin()
        if not await retries.again():
            break
    return to_do


async def exists(url: str) -> bool:
    async with fit_session(parse(url)) as session:
        return bool(await read_applied(session))


@asynccontextmanager
async def fit_session(address: MariaDsn) -> AsyncIterator[MariaConnection]:
    """Opens a session on a suitable server; errors name the server."""
    session = await address.connect()
    try:
        await refuse_unfit(session, address)
        yield session
    except ERRORS as error:
        raise translate_error(error, address.where) from error
    except StoreUnusable as error:
        raise type(error)(f"{address.where}: {error}") from None
    finally:
        session.terminate()


async def refuse_unfit(session: MariaConnection, address: MariaDsn) -> None:
    ((read_only, innodb_read_only),) = await session.rows("SELECT @@read_only, @@innodb_read_only")
    if read_only or innodb_read_only:
        raise StoreUnusable("it is read-only, perhaps a replica; use the primary")
    weak = await find_weak_settings(session)
    if weak and address.durability == "safe":
        raise StoreUnusable(
            f"the server has {' and '.join(weak)}, so a power failure could lose messages;"
            " change that or set durability=fast in the URL"
        )


async def find_weak_settings(session: MariaConnection) -> list[str]:
    """Lists the settings that could lose commits."""
    names = ", ".join(f"@@{name}" for name in NEEDED)
    (values,) = await session.rows(f"SELECT {names}")
    pairs = zip(NEEDED.items(), values, strict=True)
    return [f"{name} = {value}" for (name, needed), value in pairs if value != needed]


async def upgrade(url: str, *, plan: bool = False) -> list[str]:
    """Migrates and returns the steps taken; with `plan`, only lists them."""
    address = parse(url)
    async with fit_session(address) as session:
        steps = await plan_steps(session)
        if not plan:
            await take_steps(session, address, steps)
        return steps


async def plan_steps(session: MariaConnection) -> list[str]:
    steps = [f"migration {each.number} {each.name}" for each in await find_missing(session)]
    if await read_applied(session) and await lacks_type_index(session):
        steps.append(INDEX)
    return steps


async def take_steps(session: MariaConnection, address: MariaDsn, steps: list[str]) -> None:
    if steps:
        await migrate(session, address.moment)
    if INDEX in steps:
        await build_type_index(session)
