"""What `penstock migrate` does: migrations, and the index of types."""

from penstock.stores.mariadb import type_index
from penstock.stores.mariadb.address import Address, parse
from penstock.stores.mariadb.migrate import applied, migrate, missing
from penstock.stores.mariadb.open import fit_session
from penstock.stores.mariadb.session import Session

INDEX = "index type"


async def upgrade(url: str, *, plan: bool = False) -> list[str]:
    """The steps that were taken; with `plan`, those that would be."""
    address = parse(url)
    async with fit_session(address) as session:
        steps = await steps_to_take(session)
        if not plan:
            await take(session, address, steps)
        return steps


async def steps_to_take(session: Session) -> list[str]:
    steps = [f"migration {each.number} {each.name}" for each in await missing(session)]
    if await applied(session) and await type_index.lacking(session):
        steps.append(INDEX)
    return steps


async def take(session: Session, address: Address, steps: list[str]) -> None:
    if steps:
        await migrate(session, address.moment)
    if INDEX in steps:
        await type_index.build(session)
