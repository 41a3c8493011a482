"""Results of completed messages, read by jobs and by runs that wait for them."""

from penstock.model.store_types import Completion
from penstock.stores.sql.transaction import SqlTransaction


async def keep_result(tx: SqlTransaction, item: Completion) -> None:
    if item.result is not None:
        await tx.run("keep_result", id=item.id, now=tx.now, body=item.result)


async def get_result(tx: SqlTransaction, id: int) -> bytes | None:
    row = await tx.one("result", id=id, now=tx.now)
    return row[0] if row else None


async def awaited_results(tx: SqlTransaction, id: int) -> dict[int, bytes]:
    return {awaited: bytes(body) for awaited, body in await tx.all("awaited_results", id=id)}
