"""An agent loop: every call of the model and of a tool is a durable step, and a person checks it.

Run it with `python examples/agent_loop.py`. It simulates three days in a moment. A real agent calls
a model in `think`, and starts with `penstock worker start examples.agent_loop:app`.
"""

import asyncio
from typing import Any

from penstock import Context, Penstock
from penstock.testing import Simulation

MAX_TURNS = 10
app = Penstock("sqlite://")
model_calls: list[int] = []


def think(goal: str, seen: list[Any]) -> dict[str, Any]:
    """Stands for a model: it looks up two prices, then proposes an order."""
    model_calls.append(len(seen))
    wanted = ["bolts", "nuts"]
    if len(seen) < len(wanted):
        return {"tool": "price", "arguments": [wanted[len(seen)]]}
    return {"answer": {"goal": goal, "total": sum(seen)}}


def price(item: str) -> int:
    return {"bolts": 30, "nuts": 12}[item]


TOOLS = {"price": price}


@app.task(queue="agents")
async def agent(context: Context, goal: str) -> dict[str, Any]:
    seen: list[Any] = []
    for _ in range(MAX_TURNS):
        # A worker that dies here goes on with the next turn: stored turns are not paid again.
        action: dict[str, Any] = await context.step("think", think, goal, seen)
        if "answer" in action:
            approved = await context.signal("approved", timeout="7d", type=bool)
            return {**action["answer"], "approved": bool(approved)}
        tool = TOOLS[action["tool"]]
        seen.append(await context.step(f"tool:{action['tool']}", tool, *action["arguments"]))
    raise RuntimeError(f"no answer after {MAX_TURNS} turns")


async def main() -> dict[str, Any]:
    async with Simulation.open() as simulation:
        await simulation.use(app)
        job = await agent.aenqueue("order fasteners")
        await simulation.advance("3d")
        await app.asignal(job.id, "approved", True)
        await simulation.run_until_idle()
        return await job.aresult()


if __name__ == "__main__":
    print(asyncio.run(main()))
