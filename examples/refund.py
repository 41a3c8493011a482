"""A refund that a person approves: the task waits for a day and holds no worker.

Run it with `python examples/refund.py`. It simulates the day in seconds. A real worker starts
with `penstock worker start examples.refund:app`, and people decide with `penstock inbox`.
"""

import asyncio

from penstock import Context, HumanPattern, Penstock, Person
from penstock.testing import Simulation

app = Penstock("sqlite://")
effects: list[str] = []
PATTERN = HumanPattern(
    name="refund",
    spec={
        "title": "Refund {{amount}} for order {{order}}?",
        "assign": {"users": ["ann"]},
    },
)


def find_charge(order: int) -> int:
    effects.append(f"find charge of {order}")
    return 650


def pay_back(amount: int, key: str) -> str:
    """Stands for a payment provider, which pays once for each idempotency key."""
    effects.append(f"pay back {amount} as {key}")
    return f"paid {amount}"


@app.task(queue="refunds")
async def refund(context: Context, order: int) -> str:
    amount = await context.step("charge", find_charge, order)
    answer = await context.approve("refund", order=order, amount=amount, timeout="1d")
    if answer.choice != "approve":
        return f"refused: {answer.choice}"
    await context.sleep("4h")  # the customer may still change their mind
    return await context.step("pay-back", pay_back, amount, f"refund-{context.id}")


async def decide(simulation: Simulation, choice: str) -> None:
    """Decides the only open step as Ann, to whom it is assigned."""
    ann, inbox = Person("ann"), simulation.broker.inbox
    (found,) = await inbox.list_steps(ann)
    await inbox.decide(found.step.id, ann, choice)


async def main(choice: str | None = "approve") -> str:
    """Runs a refund that Ann decides after two hours, or not at all."""
    async with Simulation.open() as simulation:
        await simulation.use(app)
        await simulation.broker.inbox.patterns.save(PATTERN)
        job = await refund.aenqueue(7)
        await simulation.advance("2h")
        if choice is not None:
            await decide(simulation, choice)
        await simulation.advance("23h")
        return await job.aresult()


if __name__ == "__main__":
    print(asyncio.run(main()))
