"""Messages that wait are copied with their holds, edges, steps and signals, and go on."""

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.broker.copy_store import copy_store
from penstock.model.copies import CopyCursor
from penstock.model.message import After, Draft, Fail, Flag, Leased, Nack, SettleReject, State
from penstock.model.store_types import AnswerKind
from penstock.model.waiting import Hold, SignalDraft, StepRecord, StepSave
from penstock.model.workflow import NodeDraft
from penstock.rules.human import Person
from penstock.rules.human_spec import parse_spec
from penstock.store import Store
from tests.conformance.copies import Pair, read_all
from tests.conformance.stage import Stage
from tests.conformance.test_waiting import SLEEP, ask, make_entry, publish

pytestmark = pytest.mark.anyio
GO = Hold(kind="signal", name="go", delay=3_600.0)


async def save_step(stage: Stage, id: int, fence: int, name: str, **fields: Any) -> None:
    step = StepRecord(name=name, key="0", body=name.encode(), **fields)
    await stage.store.save_steps([StepSave(id=id, fence=fence, step=step)])


async def signal(stage: Stage, id: int, body: bytes = b"1", key: str | None = None) -> int:
    return (await stage.store.signal(SignalDraft(id=id, name="go", body=body, key=key))).id


async def suspend(stage: Stage, leased: Leased, hold: Hold, *, steps: bool = True) -> None:
    """Lets a run wait. One that stored a step has the flag for it."""
    flags = leased.flags | (Flag.STEPS if steps else 0)
    answer = await stage.store.wait(replace(ask(leased, hold), seen_flags=flags))
    assert answer.kind is AnswerKind.DONE


async def wait_for_children(stage: Stage) -> tuple[int, list[int]]:
    """A run that waits for two children, of which the first has completed."""
    id = await stage.publish()
    leased = await stage.take()
    children = (await make_entry(stage), await make_entry(stage))
    step = StepRecord(name="both", key="0", kind="gather", position=1, done=False)
    hold = Hold(kind="after", after=After(entries=(0, 1), policy="settled"))
    await stage.store.wait(ask(leased, hold, children=children, children_step=step))
    await stage.store.resume_held()
    first = await stage.take()
    await stage.broker.complete(first, b"1")
    (edge, other) = await stage.store.edges(id)
    return id, [edge.awaited_id, other.awaited_id]


async def read_waits(store: Store, ids: list[int]) -> list[Any]:
    return [
        (
            await store.holds([id]), await store.edges(id), (await store.steps(id)).steps,
            await store.signals(id), await store.awaited_results(id),
        )
        for id in ids
    ]  # fmt: skip


async def wait_in_every_way(stage: Stage) -> list[int]:
    """Sleeps, waits for a signal and for children, dies and ends, each with steps."""
    slept = await stage.publish()
    leased = await stage.take()
    await save_step(stage, slept, leased.fence, "paid", position=1)
    await save_step(stage, slept, leased.fence, "booked", position=2, done=False, due_at=9)
    await suspend(stage, leased, SLEEP)
    called = await stage.publish()
    leased = await stage.take()
    await signal(stage, called, b"early", key="k")
    consumed = await signal(stage, called, b"", key="")
    step = StepRecord(name="go", key="1", kind="signal")
    await stage.store.save_steps(
        [StepSave(id=called, fence=leased.fence, step=step, consumes=consumed)]
    )
    await suspend(stage, leased, Hold(kind="signal", name="stop"))
    ids = [slept, called]
    for settlement in (SettleReject("no"), Nack("again", delay=0.0)):
        ids.append(await stage.publish())
        leased = await stage.take()
        await save_step(stage, ids[-1], leased.fence, "done", position=1)
        await stage.broker.settle(leased, settlement)
    await stage.broker.complete(await stage.take(), b"end")
    parent, children = await wait_for_children(stage)
    await stage.store.resume_held()
    return [*ids, parent, *children]


async def test_what_waits_is_copied_as_it_is(pair: Pair) -> None:
    source, target = pair
    ids = await wait_in_every_way(source)
    await copy_store(source.store, target.store)
    assert await read_all(target.store, ids) == await read_all(source.store, ids)
    assert await read_waits(target.store, ids) == await read_waits(source.store, ids)


async def test_a_message_that_waits_without_steps_waits_in_the_copy(pair: Pair) -> None:
    source, target = pair
    id = await source.publish()
    await suspend(source, await source.take(), GO, steps=False)
    await copy_store(source.store, target.store)
    assert await target.store.holds([id]) == await source.store.holds([id]) != []


async def test_a_sleeper_resumes_in_the_copy_with_its_steps(pair: Pair) -> None:
    source, target = pair
    id, *_ = await wait_in_every_way(source)
    await copy_store(source.store, target.store)
    await target.drain()
    await target.store.resume_held()
    assert id not in await target.drain()
    await target.travel(61)
    assert await target.promote() == 0
    assert (await target.store.resume_held()).resumed == 1
    again = await target.take()
    assert (again.id, bool(again.flags & Flag.STEPS)) == (id, True)
    await save_step(target, id, again.fence, "paid", position=5)
    found = (await target.store.steps(id)).steps
    assert [(step.name, step.position) for step in found] == [("paid", 1), ("booked", 2)]


async def test_a_signal_resumes_a_copied_message_and_has_a_new_id(pair: Pair) -> None:
    source, target = pair
    id = await source.publish()
    old = await signal(source, id, b"old")
    leased = await source.take()
    step = StepRecord(name="go", key="0", kind="signal")
    await source.store.save_steps([StepSave(id=id, fence=leased.fence, step=step, consumes=old)])
    await suspend(source, leased, GO)
    await copy_store(source.store, target.store)
    assert (await target.store.resume_held()).resumed == 0
    new = await signal(target, id, b"new")
    assert new > old
    await target.store.resume_held()
    assert (await target.take()).id == id
    received = await target.store.signals(id)
    assert [(each.id, each.consumed) for each in received] == [(old, True), (new, False)]


async def test_the_end_of_the_last_child_resumes_a_copied_run(pair: Pair) -> None:
    source, target = pair
    id, (first, second) = await wait_for_children(source)
    await copy_store(source.store, target.store)
    await target.store.resume_held()
    assert (await target.take()).id == second
    assert await target.claim() == []
    await target.travel(60)
    await target.sweep()
    await target.travel(60)
    await target.promote()
    await target.broker.complete(await target.take(), b"2")
    assert (await target.store.resume_held()).resumed == 1
    assert (await target.take()).id == id
    assert await target.store.awaited_results(id) == {first: b"1", second: b"2"}


async def test_an_end_that_the_source_has_not_looked_at_is_seen_in_the_copy(pair: Pair) -> None:
    source, target = pair
    after = After(entries=(0,))
    _, held, _, dependent = await publish(
        source, await make_entry(source),
        await make_entry(source, flags=Flag.HELD, after=after), await make_entry(source),
        await make_entry(source, flags=Flag.HELD, after=After(entries=(2,))),
    )  # fmt: skip
    await source.broker.complete(await source.take())
    await source.broker.settle(await source.take(), Fail("no"))
    await copy_store(source.store, target.store)
    assert (await target.store.resume_held()).resumed == 1
    assert (await target.take()).id == held
    assert await target.state(dependent) is State.CANCELLED


async def test_a_held_message_enters_the_line_of_its_key_when_it_is_free(pair: Pair) -> None:
    source, target = pair
    keyed = {"flags": Flag.HELD | Flag.KEYED, "ordering_key": "k", "meta": '{"ordering_key":"k"}'}
    _, held = await publish(
        source,
        await make_entry(source),
        await make_entry(source, after=After(entries=(0,)), **keyed),
    )
    head = await source.publish(ordering_key="k")
    behind = await source.publish(ordering_key="k")
    await source.broker.complete(await source.take())
    await suspend(source, await source.take(), SLEEP, steps=False)
    await copy_store(source.store, target.store)
    await target.store.resume_held()
    assert await target.claim() == []
    await target.travel(61)
    await target.store.resume_held()
    assert await target.drain() == [head, held, behind]


async def test_the_result_of_a_removed_message_is_copied_for_those_that_wait(pair: Pair) -> None:
    source, target = pair
    await source.queue("short")
    child = await make_entry(source)
    short = await source.publish(queue="short")
    holds = [After(ids=(short,), entries=(0,)), After(ids=(short,), entries=(0,))]
    _, *held = await publish(
        source, child, *[await make_entry(source, flags=Flag.HELD, after=each) for each in holds]
    )
    await source.broker.complete(await source.take("short"), b"42")
    await source.store.resume_held()
    await source.travel(100)
    assert await source.prune(50, "short") == 1
    await copy_store(source.store, target.store)
    for id in held:
        assert await target.store.awaited_results(id) == {short: b"42"}
    await target.store.resume_held()
    await target.drain()
    assert (await target.store.resume_held()).resumed == 2


async def test_waits_restored_twice_are_written_once(pair: Pair) -> None:
    source, target = pair
    ids = await wait_in_every_way(source)
    queue_ids = {await source.queue_id(): await target.queue_id()}
    page = await source.store.dump(CopyCursor(None), 100)
    await target.store.restore(page, queue_ids)
    await target.store.restore(page, queue_ids)
    assert await read_waits(target.store, ids) == await read_waits(source.store, ids)


async def test_an_open_human_step_is_decided_in_the_copy(pair: Pair) -> None:
    source, target = pair
    spec = parse_spec({"title": "Ship?", "assign": {"users": ["ann"]}})
    asked = await source.broker.inbox.request(spec)
    await copy_store(source.store, target.store)
    ann = Person("ann")
    (step,) = await target.broker.inbox.list_steps(ann)
    assert step.step.id == asked.id
    await target.broker.inbox.decide(asked.id, ann, "approve")
    assert await target.state(asked.id) is State.COMPLETED


async def test_a_workflow_goes_on_in_the_copy(pair: Pair) -> None:
    source, target = pair
    nodes = [
        NodeDraft(label="first", draft=Draft()),
        NodeDraft(label="second", draft=Draft(), after=(0,)),
    ]
    started = await source.broker.workflows.start("night", nodes)
    await copy_store(source.store, target.store)
    ids = [node.id for node in (await target.broker.workflows.get(started.id)).workflow.nodes]
    assert await target.drain() == ids[:1]
    await target.store.resume_held()
    assert await target.drain() == ids[1:]
