"""A nightly report: close the books, count every shop at the same time, then add up.

Run it with `python examples/nightly.py`. It simulates the night in memory. Real workers start with
`penstock worker start examples.nightly:app`, and a task with a cron schedule calls `start`.
"""

import asyncio

from penstock import Context, FlowNode, Penstock
from penstock.testing import Simulation

app = Penstock("sqlite://")
SALES = {"berlin": 120, "lisbon": 80, "oslo": 45}
counted: list[str] = []


@app.task(queue="nightly")
def close_books(day: str) -> None:
    """Stands for what must happen before anything is counted."""


@app.task(queue="nightly", max_attempts=5)
def count_sales(shop: str, day: str) -> int:
    counted.append(shop)
    return SALES[shop]


@app.task(queue="nightly")
async def report(context: Context, day: str) -> dict[str, int]:
    counts: list[int] = await context.results()  # in the order of `add`
    return {"shops": len(counts), "total": sum(counts)}


async def start(day: str) -> FlowNode[dict[str, int]]:
    """Starts the tasks of a day. The key makes a second start harmless: nothing runs twice."""
    async with app.workflow("nightly", key=f"nightly:{day}") as flow:
        closed = flow.add(close_books.call(day))
        parts = [flow.add(count_sales.call(shop, day), after=closed) for shop in SALES]
        last = flow.add(report.call(day), after=parts)
    return last


async def main(day: str = "2026-11-18") -> dict[str, int]:
    async with Simulation.open() as simulation:
        await simulation.use(app)
        last = await start(day)
        await start(day)
        await simulation.run_until_idle()
        return await last.job.aresult()


if __name__ == "__main__":
    print(asyncio.run(main()))
