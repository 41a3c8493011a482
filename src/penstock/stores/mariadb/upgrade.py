"""Implements `penstock migrate`: migrations and the type index."""

from penstock.stores.mariadb import schema
from penstock.stores.mariadb.connection import MariaConnection
from penstock.stores.mariadb.dsn import MariaDsn, parse
from penstock.stores.mariadb.migrate import find_missing, migrate, read_applied
from penstock.stores.mariadb.open import fit_session

INDEX = "index type"


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
    if await read_applied(session) and await schema.is_missing(session):
        steps.append(INDEX)
    return steps


async def take_steps(session: MariaConnection, address: MariaDsn, steps: list[str]) -> None:
    if steps:
        await migrate(session, address.moment)
    if INDEX in steps:
        await schema.build(session)
