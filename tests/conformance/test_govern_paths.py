"""Rules, schemas and subscriptions apply on every path by which a message is published.

The paths through Spark are in tests/pipeline/test_govern_paths.py.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeAlias

import pytest

from penstock.agents.rule_follower import RuleFollower
from penstock.agents.scheduler import Scheduler
from penstock.broker.queue_cache import QueueCache
from penstock.broker.waiting.dependencies import DependentDraft
from penstock.errors import InvalidState, SchemaMismatch
from penstock.model.message import Draft
from penstock.model.queue import Schedule
from penstock.model.waiting import StepRecord
from penstock.model.workflow import NodeDraft
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio
Govern: TypeAlias = Callable[[], Awaitable[None]]
# Publishes the draft after the policy was saved. A refusal is raised or answered.
Path: TypeAlias = Callable[[Stage, Draft, Govern], Awaitable[None]]


async def publish_alone(stage: Stage, draft: Draft, govern: Govern) -> None:
    await govern()
    await stage.broker.publish(draft)


async def publish_in_a_batch(stage: Stage, draft: Draft, govern: Govern) -> None:
    await govern()
    await stage.broker.publish_many([draft, Draft()])


async def publish_alike(stage: Stage, draft: Draft, govern: Govern) -> None:
    await govern()
    await stage.broker.publish_many([draft] * 3)


async def publish_all_or_none(stage: Stage, draft: Draft, govern: Govern) -> None:
    await govern()
    await stage.broker.publish_many([draft, Draft()], atomic=True)


async def publish_in_a_transaction(stage: Stage, draft: Draft, govern: Govern) -> None:
    await govern()
    with stage.engine.caller() as connection:
        entry = await stage.broker.admit(draft)
        stage.broker.publish_on(connection, draft, entry)


async def publish_by_cron(stage: Stage, draft: Draft, govern: Govern) -> None:
    await stage.admin.schedule(Schedule("s", "* * * * *", draft))
    await govern()
    await stage.travel(60)
    await Scheduler(stage.store, QueueCache(stage.store), "me").tick()


async def publish_from_a_handler(stage: Stage, draft: Draft, govern: Govern) -> None:
    await govern()
    await stage.publish()
    step = StepRecord(name="child", key="1", kind="enqueue")
    await stage.broker.waits.save_step(await stage.take(), step, draft=draft)


async def publish_before_others(stage: Stage, draft: Draft, govern: Govern) -> None:
    await govern()
    await stage.broker.publish_dependents([DependentDraft(draft)])


async def publish_by_a_rule_on_an_end(stage: Stage, draft: Draft, govern: Govern) -> None:
    await stage.broker.rules.save(
        {"name": "end", "queue": "default", "on": "completed", "do": [{"copy": draft.queue}]}
    )
    await govern()
    await stage.completed(body=draft.body)
    follower = RuleFollower(stage.store, QueueCache(stage.store), "me")
    while not await follower.tick():
        pass


PATHS: list[Path] = [
    publish_alone, publish_in_a_batch, publish_alike, publish_all_or_none,
    publish_in_a_transaction, publish_by_cron, publish_from_a_handler, publish_before_others,
    publish_by_a_rule_on_an_end,
]  # fmt: skip
on_each_path = pytest.mark.parametrize("publish", PATHS, ids=lambda path: path.__name__)


@on_each_path
async def test_a_rule_routes(stage: Stage, publish: Path) -> None:
    for name in ("orders", "vip"):
        await stage.queue(name)
    rule = {"name": "r", "queue": "orders", "do": [{"route": "vip"}]}
    await publish(stage, Draft(queue="orders"), lambda: save_rule(stage, rule))
    assert await stage.claim("orders", limit=9) == []
    routed = await stage.claim("vip", limit=9)
    assert routed
    assert {each.meta.path[-1] for each in routed} == {"r@1"}


@on_each_path
async def test_a_schema_refuses(stage: Stage, publish: Path) -> None:
    await stage.queue("orders")

    async def bind() -> None:
        await stage.broker.schemas.add("order", {"type": "object", "required": ["n"]})
        await stage.broker.schemas.bind("orders", "order")

    with suppress(SchemaMismatch):
        await publish(stage, Draft(queue="orders", body=b"{}"), bind)
    assert (await stage.broker.schemas.list_bindings("orders"))[0].schema == "order"
    assert await stage.admin.find("orders") == []


@on_each_path
async def test_a_subscription_gets_its_copy(stage: Stage, publish: Path) -> None:
    await stage.queue("events", kind="broadcast")

    async def subscribe() -> None:
        await stage.broker.broadcasts.subscribe("events", "s")

    await publish(stage, Draft(queue="events", body=b"1"), subscribe)
    assert await stage.claim("events", limit=9) == []
    assert {each.body for each in await stage.claim("events/s", limit=9)} == {b"1"}


async def save_rule(stage: Stage, rule: dict[str, Any]) -> None:
    await stage.broker.rules.save(rule)


async def start(stage: Stage, queue: str) -> int:
    started = await stage.broker.workflows.start("w", [NodeDraft(draft=Draft(queue=queue))])
    return started.ids[0]


async def test_a_task_of_a_workflow_is_changed_by_rules_but_stays_in_its_queue(
    stage: Stage,
) -> None:
    for name in ("orders", "away", "vip"):
        await stage.queue(name)
    await stage.queue("events", kind="broadcast")
    await save_rule(stage, {"name": "s", "queue": "orders", "do": [{"set": {"priority": 7}}]})
    await save_rule(stage, {"name": "a", "queue": "away", "do": [{"route": "vip"}]})
    id = await start(stage, "orders")
    taken = await stage.take("orders")
    assert (taken.id, taken.priority, taken.meta.path) == (id, 7, ("s@1",))
    for queue in ("away", "events"):
        with pytest.raises(InvalidState, match="stays in its queue"):
            await start(stage, queue)
        assert await stage.admin.find(queue) == []
