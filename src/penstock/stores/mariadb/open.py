"""Opens a MariaDB store by its URL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock.errors import InvalidInput, StoreUnusable
from penstock.store import Clock
from penstock.stores.mariadb.connection import MariaConnection
from penstock.stores.mariadb.dsn import MariaDsn, parse
from penstock.stores.mariadb.errors import ERRORS, translate_error
from penstock.stores.mariadb.migrate import find_missing, migrate, read_applied
from penstock.stores.mariadb.schema import refuse_incomplete
from penstock.stores.mariadb.statement import fill_statement
from penstock.stores.mariadb.store import MariaStore
from penstock.stores.migrations import Migration

# Attempts and delay while another process migrates.
RETRY_ATTEMPTS, RETRY_DELAY_S = 30, 0.1
# Server settings under which a commit survives a power cut.
NEEDED = {"innodb_flush_log_at_trx_commit": 1, "innodb_doublewrite": 1}


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
    return MariaStore(address, seal)


async def wait_for_migrations(session: MariaConnection) -> list[Migration]:
    """Waits for another process that is creating or migrating the store."""
    to_do = await find_missing(session)
    for _ in range(RETRY_ATTEMPTS if to_do else 0):
        await asyncio.sleep(RETRY_DELAY_S)
        if not (to_do := await find_missing(session)):
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
            f"the server has {' and '.join(weak)}, so a power cut could lose messages;"
            " change that or set durability=fast in the URL"
        )


async def find_weak_settings(session: MariaConnection) -> list[str]:
    """Lists the settings that could lose commits."""
    names = ", ".join(f"@@{name}" for name in NEEDED)
    (values,) = await session.rows(f"SELECT {names}")
    pairs = zip(NEEDED.items(), values, strict=True)
    return [f"{name} = {value}" for (name, needed), value in pairs if value != needed]
