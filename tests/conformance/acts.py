"""Everything that can be done to a claimed message, and every way a message can end."""

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.broker.interfaces.broker import Held
from penstock.broker.local import Broker
from penstock.model.message import (
    Fail,
    Nack,
    Park,
    Release,
    SettleCancelled,
    Settlement,
    SettleReject,
    State,
)
from penstock.model.store_types import Answer
from tests.conformance.stage import HOUR, LEASE_OVER, Stage

Act = Callable[[Broker, Held], Awaitable[Answer]]
Ending = Callable[[Stage], Awaitable[None]]


def settling(settlement: Settlement) -> Act:
    return lambda broker, held: broker.settle(held, settlement)


# What ends a lease, and the state it leads to at the first attempt.
SETTLING: dict[str, tuple[Act, State]] = {
    "complete": (lambda broker, held: broker.complete(held, b"done"), State.COMPLETED),
    "fail": (settling(Fail("broken")), State.FAILED),
    "nack": (settling(Nack("later", delay=60)), State.SCHEDULED),
    "nack at once": (settling(Nack("again", delay=0)), State.READY),
    "reject": (settling(SettleReject("bad")), State.DEAD),
    "release": (settling(Release()), State.READY),
    "park": (settling(Park()), State.SCHEDULED),
    "cancelled": (settling(SettleCancelled("stopped")), State.CANCELLED),
}

# Everything a consumer may ask under its fence.
ACTS: dict[str, Act] = {name: act for name, (act, _) in SETTLING.items()} | {
    "extend": lambda broker, held: broker.extend(held, 600),
    "begin": lambda broker, held: broker.begin(held),
    "progress": lambda broker, held: broker.progress(held, 50, "half"),
}


def end_by(act: Act) -> Ending:
    async def end(stage: Stage) -> None:
        await act(stage.broker, await stage.take("work"))

    return end


async def nacked(stage: Stage) -> None:
    await stage.broker.settle(await stage.take("work"), Nack("last chance"))


async def crashed(stage: Stage) -> None:
    await stage.take("work")
    await stage.travel(LEASE_OVER)
    assert len(await stage.sweep()) == 1


async def cancelled_ready(stage: Stage) -> None:
    (record,) = await stage.admin.find("work", state=State.READY)
    await stage.admin.cancel(record.message.id)


async def cancelled_on_request(stage: Stage) -> None:
    leased = await stage.take("work")
    await stage.admin.cancel(leased.id)
    await stage.broker.settle(leased, Release())


async def cancelled_by_force(stage: Stage) -> None:
    await stage.admin.cancel((await stage.take("work")).id, force=True)


async def expired(stage: Stage) -> None:
    await stage.travel(HOUR + 1)
    assert await stage.store.expire(10) == 1


async def expired_in_a_claim(stage: Stage) -> None:
    await stage.travel(HOUR + 1)
    await stage.store.claim(await stage.ask("work"))


async def purged(stage: Stage) -> None:
    assert await stage.admin.purge("work", "ready") == 1


# A draft that each ending below can end, and what it is then.
ENDABLE: dict[str, Any] = {"queue": "work", "ttl": HOUR, "max_attempts": 1, "max_deliveries": 1}
# The one ready message of queue "work", published as ENDABLE, comes to its end.
ENDINGS: dict[str, tuple[Ending, State]] = {
    "completed": (end_by(SETTLING["complete"][0]), State.COMPLETED),
    "failed": (end_by(SETTLING["fail"][0]), State.FAILED),
    "rejected": (end_by(SETTLING["reject"][0]), State.DEAD),
    "out of attempts": (nacked, State.DEAD),
    "out of deliveries": (crashed, State.DEAD),
    "cancelled": (cancelled_ready, State.CANCELLED),
    "cancelled on request": (cancelled_on_request, State.CANCELLED),
    "cancelled by force": (cancelled_by_force, State.CANCELLED),
    "expired": (expired, State.EXPIRED),
    "expired in a claim": (expired_in_a_claim, State.EXPIRED),
    "purged": (purged, State.CANCELLED),
}
