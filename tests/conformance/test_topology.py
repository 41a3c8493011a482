"""A topology: applied whole or not at all, owned by its name, pruned with care."""

import tomllib

import anyio
import pytest
from msgspec.structs import replace

from penstock.errors import Conflict, InvalidInput, InvalidState, PenstockError, TopologyChanged
from penstock.model.documents import Document
from penstock.model.message import Draft
from penstock.model.queue import QueueState, Schedule
from penstock.model.settings import QueueSettings
from penstock.model.topology import NewTopologyQueue, TopologyChange, TopologySchedule
from penstock.rules.topology_file import write_toml
from tests.conformance.stage import Stage
from tests.conformance.test_human import ADMIN

pytestmark = pytest.mark.anyio

SHOP = """
name = "shop"
[[scope]]
name = "billing"
display_name = "Billing"
[[queue]]
name = "orders"
max_attempts = 3
backoff = { initial = 5 }
[[queue]]
name = "invoices"
scope = "billing"
preset = "relay"
[[queue]]
name = "vip"
[[schedule]]
name = "nightly"
queue = "orders"
cron = "0 3 * * *"
type = "order.cleanup"
body = { dry = true }
[[schema]]
name = "order"
schema = { type = "object", required = ["id"] }
[[binding]]
queue = "orders"
type = "order.placed"
schema = "order"
[[trust]]
scope = "billing"
trusted = "default"
grants = ["publish:invoices"]
[[role]]
name = "clerk"
grants = ["read", "publish:orders"]
[[rule]]
name = "vip"
queue = "orders"
when = "message.labels.tier == 'gold'"
do = [{ route = "vip" }]
[[queue]]
name = "events"
consumer_mode = "broadcast"
[[subscription]]
queue = "events"
name = "mailer"
filter = "type:order.*"
ttl = 3600
max_attempts = 2
start = "earliest"
[[human_webhook]]
name = "chat"
url = "https://example.org/approvals"
links = true
[[pattern]]
name = "refund"
spec = { title = "Refund order {{order}}?" }
[[alert]]
name = "pager"
url = "https://example.org/pager"
severities = ["critical"]
"""
ONE = 'name = "shop"\n[[queue]]\nname = "orders"\n'


async def test_a_change_of_everything_is_applied_in_one_step(stage: Stage) -> None:
    old = await stage.admin.create_queue("old")
    gone = await stage.admin.create_queue("gone")
    kept = await stage.admin.schedule(Schedule("kept", "* * * * *", Draft(queue="old")))
    await stage.admin.schedule(Schedule("dropped", "* * * * *", Draft(queue="gone")))
    await stage.store.save_documents([Document(kind="paper", name="a", body=b"1")])
    change = TopologyChange(
        tenant="default",
        directory_version=await stage.store.directory_version(),
        new_scopes=("shop",),
        new_queues=(NewTopologyQueue("shop", "orders", QueueSettings(max_attempts=3)),),
        changed_queues=((old, QueueSettings(filter_by_type=True)),),
        deleted_queues=(gone,),
        schedules=(
            TopologySchedule("shop", "orders", Schedule("new", "0 3 * * *", Draft(), next_at=7)),
        ),
        deleted_schedules=(kept,),
        documents=(Document(kind="paper", name="b", body=b"2", version=0),),
        deleted_documents=(("paper", "a"),),
    )
    await stage.store.apply(change)
    stage.broker.forget_queues()
    (orders,) = [q for q in await stage.admin.queues(scope="shop") if not q.system]
    assert (orders.name, orders.settings.max_attempts) == ("orders", 3)
    assert (await stage.admin.queue("old")).settings.filter_by_type
    assert (await stage.broker.get_queue_by_id(gone.id)).state is QueueState.DELETED
    (schedule,) = await stage.store.schedules()
    assert (schedule.name, schedule.queue_id, schedule.next_at) == ("new", orders.id, 7)
    assert [each.name for each in await stage.store.documents("paper")] == ["b"]
    with pytest.raises(TopologyChanged):
        await stage.store.apply(change)


async def test_a_queue_with_unfinished_messages_refuses_the_whole_change(stage: Stage) -> None:
    queue = await stage.admin.create_queue("busy")
    await stage.publish(queue="busy")
    version = await stage.store.directory_version()
    change = TopologyChange(
        tenant="default",
        directory_version=version,
        new_scopes=("shop",),
        deleted_queues=(queue,),
    )
    with pytest.raises(InvalidState, match="'busy' has unfinished"):
        await stage.store.apply(change)
    assert await stage.store.scope("default", "shop") is None
    assert await stage.store.directory_version() == version


async def test_a_topology_is_applied_once_and_exported_as_it_is(stage: Stage) -> None:
    topology = stage.broker.topology
    plan = await topology.plan(SHOP)
    assert [each.step for each in plan.steps] == ["create"] * 15
    assert await stage.store.scope("default", "billing") is None
    assert (await topology.apply(SHOP)).applied
    again = await topology.plan(SHOP)
    assert (again.steps, again.unchanged, again.changes) == ((), 15, False)
    exported = await topology.export("shop")
    assert tomllib.loads(write_toml(exported)) == exported
    assert (await topology.plan(exported)).unchanged == 15
    await stage.publish(b"{}", queue="orders", labels={"tier": "gold"})
    assert len(await stage.claim("vip")) == 1
    await stage.publish(b"{}", queue="events", type="order.sent")
    await stage.publish(b"{}", queue="events", type="other")
    assert len(await stage.claim("events/mailer", limit=9)) == 1
    with pytest.raises(PenstockError, match="does not match schema order@1"):
        await stage.publish(b"{}", queue="orders", type="order.placed")


async def test_a_changed_file_changes_what_it_owns_and_prunes_if_asked(stage: Stage) -> None:
    topology = stage.broker.topology
    await topology.apply(SHOP)
    await stage.publish(queue="vip")
    await stage.publish(queue="events", type="order.sent")
    less = await topology.apply(ONE)
    assert {each.step for each in less.steps} == {"change", "leave"}
    assert (await stage.admin.queue("orders")).settings == QueueSettings()
    pruned = await topology.apply(ONE, prune=True)
    steps = {(each.kind, each.key): each.step for each in pruned.steps}
    assert steps["queue", "vip"] == steps["subscription", "events/mailer"] == "keep"
    assert steps["queue", "events"] == "keep"
    assert steps["queue", "invoices"] == steps["rule", "vip"] == "remove"
    assert (await stage.broker.scopes.get("billing")).state == "archived"
    assert await stage.admin.schedules() == []
    assert await stage.broker.schemas.list_schemas() == []
    await stage.claim("vip")
    await stage.admin.delete_queue("vip", force=True)
    await stage.broker.broadcasts.unsubscribe("events", "mailer")
    await topology.apply(ONE, prune=True)
    assert (await topology.export("shop"))["queue"] == [{"name": "orders"}]


async def test_what_others_made_is_taken_over_only_by_adopting_it(stage: Stage) -> None:
    topology = stage.broker.topology
    await stage.queue("orders", max_attempts=9)
    with pytest.raises(Conflict, match="queue orders exists already"):
        await topology.apply(ONE)
    (step,) = (await topology.apply(ONE, adopt=True)).steps
    assert (step.step, step.changes[0].field) == ("change", "max_attempts")
    other = ONE.replace("shop", "other")
    with pytest.raises(Conflict, match="belongs to topology 'shop'"):
        await topology.apply(other)
    assert [each.step for each in (await topology.apply(other, adopt=True)).steps] == ["adopt"]
    pruned = await topology.apply('name = "shop"', prune=True)
    assert (pruned.steps, (await stage.admin.queue("orders")).name) == ((), "orders")


async def test_switches_of_operators_outlast_an_apply(stage: Stage) -> None:
    await stage.broker.topology.apply(SHOP)
    await stage.broker.rules.enable("vip", enabled=False)
    (schedule,) = await stage.admin.schedules()
    await stage.admin.schedule(replace(schedule, paused=True))
    changed = SHOP.replace('type = "order.cleanup"', 'type = "order.clean"')
    (step,) = (await stage.broker.topology.apply(changed)).steps
    assert step.key == "orders/nightly"
    (schedule,) = await stage.admin.schedules()
    assert (schedule.paused, schedule.draft.type) == (True, "order.clean")
    assert not (await stage.broker.rules.get("vip")).rule.enabled


async def test_a_file_with_mistakes_applies_nothing_and_names_their_places(stage: Stage) -> None:
    version = await stage.store.directory_version()
    for bad, problem in (
        (
            SHOP.replace("max_attempts", "max_atempts"),
            r"queue\[1\] 'orders' \(line 6\).*max_attempts",
        ),
        (SHOP.replace('"0 3 * * *"', '"often"'), r"schedule\[1\] 'nightly' \(line 16\)"),
        (SHOP.replace("route = ", "rout = "), r"rule\[1\] 'vip'.*rout"),
        (SHOP.replace("message.labels", "mesage.labels"), r"rule\[1\] 'vip'"),
        (SHOP.replace('schema = "order"', 'schema = "ordr"'), r"binding\[1\].*ordr"),
        (SHOP.replace('grants = ["read"', 'grants = ["raed"'), r"role\[1\] 'clerk'"),
        (SHOP.replace("[[queue]]", "[[queu]]"), "did you mean 'queue'"),
        (SHOP + ONE.partition("\n")[2], r"queue\[5\] 'orders'.*the same as queue\[1\]"),
        (SHOP.replace('name = "shop"', 'name = "shop"\nformat = 2'), "format is 2"),
        ("name = ", "cannot be read"),
        ('name = "many"\n' + "[[queue]]\n" * 10_001, "at most 10,000"),
    ):
        with pytest.raises(InvalidInput, match=problem):
            await stage.broker.topology.apply(bad)
    assert await stage.store.directory_version() == version
    assert [queue.name for queue in await stage.admin.queues() if not queue.system] == ["default"]


async def test_of_two_applies_at_once_each_is_whole_or_refused(stage: Stage) -> None:
    outcomes: list[str] = []

    async def apply(at: Stage, name: str) -> None:
        queues = "".join(f'[[queue]]\nname = "{name}-{n}"\n' for n in range(20))
        try:
            await at.broker.topology.apply(f'name = "{name}"\n{queues}')
            outcomes.append("applied")
        except TopologyChanged:
            outcomes.append("refused")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(apply, stage, "a")
        tasks.start_soon(apply, await stage.another(), "b")
    assert "applied" in outcomes
    names = [queue.name for queue in await stage.admin.queues() if "-" in queue.name]
    assert len(names) == 20 * outcomes.count("applied")


async def test_a_rule_may_ask_people_with_a_pattern_of_the_same_file(stage: Stage) -> None:
    text = """
name = "shop"
[[scope]]
name = "billing"
[[queue]]
name = "orders"
scope = "billing"
[[pattern]]
name = "check"
scope = "billing"
spec = { title = "Order {{order}}?" }
[[rule]]
name = "fraud"
scope = "billing"
queue = "orders"
do = [{ escalate = { pattern = "check", parameters = { order = "message.body.order" } } }]
"""
    await stage.broker.topology.apply(text)
    await stage.broker.publish(Draft(queue="orders", body=b'{"order": 7}'), scope="billing")
    (found,) = await stage.broker.inbox.list_steps(ADMIN, view="all", scope="billing")
    assert found.step.spec.title == "Order 7?"
