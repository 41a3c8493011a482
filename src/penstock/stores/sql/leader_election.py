"""Leader election of agents: the process that claims a tick runs it, and the others do not."""

from penstock.model.store_types import AgentRun
from penstock.stores.sql.transaction import SqlTransaction


async def claim_tick(tx: SqlTransaction, agent: str, every: float, by: str) -> bool:
    """Claims a tick. One more than `every` ahead was claimed before the clock was set back."""
    length = int(every * 1_000_000)
    before, after = tx.now - length, tx.now + length
    return await tx.run("claim_tick", name=agent, now=tx.now, by=by, before=before, after=after) > 0


async def end_tick(tx: SqlTransaction, agent: str, by: str, result: str) -> None:
    await tx.run("end_tick", result=result, name=agent, by=by)


async def agent_runs(tx: SqlTransaction) -> list[AgentRun]:
    return [AgentRun(*row) for row in await tx.all("agent_runs")]
