"""Messages that wait: holds, nudges, steps, signals and edges."""

import json

import pytest
from msgspec.structs import replace

from penstock.agents.pruner import Pruner
from penstock.errors import Archived, ChildRefused, WaitsForItself
from penstock.model.changes import Change
from penstock.model.message import (
    After,
    Dedup,
    Draft,
    Fail,
    Flag,
    Leased,
    Release,
    SettleReject,
    State,
    Verb,
)
from penstock.model.store_types import AnswerKind, Completion, Entry
from penstock.model.waiting import (
    AwaitedOutcome,
    HeldEnd,
    Hold,
    SignalDraft,
    StepRecord,
    StepSave,
    Wait,
    WaitFacts,
    WaitPlan,
)
from tests.conformance.stage import DAY, Stage

pytestmark = pytest.mark.anyio
SLEEP = Hold(kind="moment", delay=60.0)


def ask(leased: Leased, *holds: Hold, **how: object) -> Wait:
    given = {"attempts": 0, "deliveries": 0, "reason": "sleep", "holds": holds, **how}
    return Wait(id=leased.id, fence=leased.fence, seen_flags=leased.flags, **given)  # type: ignore[arg-type]


async def make_entry(stage: Stage, **fields: object) -> Entry:
    return Entry(await stage.queue_id(), "message", b"", **fields)  # type: ignore[arg-type]


async def publish(stage: Stage, *entries: Entry) -> list[int]:
    return [each.id for each in await stage.store.enqueue(entries, atomic=True)]


async def state_of(stage: Stage, id: int) -> State:
    record = await stage.store.get(id)
    assert record is not None
    return record.state


async def test_a_waiting_message_has_no_lease_and_resumes_when_due(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    assert (await stage.store.wait(ask(leased, SLEEP))).kind is AnswerKind.DONE
    record = await stage.store.get(id)
    assert record is not None
    assert (record.state, record.lease_until) == (State.SCHEDULED, None)
    row = record.timeline[-1]
    assert (row.verb, row.state, row.reason) == (Verb.WAIT, State.SCHEDULED, "sleep")
    assert row.due_at == record.due_at
    await stage.store.resume_held()
    assert await stage.claim() == []
    await stage.travel(61)
    assert await stage.promote() == 0
    assert (await stage.store.resume_held()).resumed == 1
    again = await stage.take()
    assert (again.id, again.attempts, again.deliveries) == (id, 0, 1)
    assert not again.flags & Flag.HELD
    assert await stage.store.holds([id]) == []


async def test_a_wait_under_a_stale_fence_changes_nothing(stage: Stage) -> None:
    await stage.publish()
    leased = await stage.take()
    stale = replace(ask(leased, SLEEP), fence=leased.fence + 1)
    assert (await stage.store.wait(stale)).kind is AnswerKind.LOST
    assert (await stage.store.wait(ask(leased, SLEEP))).kind is AnswerKind.DONE
    assert (await stage.store.wait(ask(leased, SLEEP))).kind is AnswerKind.ALREADY
    lost = await stage.store.complete([Completion(leased.id, leased.fence)])
    assert [answer.kind for answer in lost] == [AnswerKind.LOST]
    assert await state_of(stage, leased.id) is State.SCHEDULED


async def test_a_signal_resumes_its_message(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.store.wait(ask(leased, Hold(kind="signal", name="go", delay=3600.0)))
    await stage.store.resume_held()
    await stage.store.signal(SignalDraft(id=id, name="other", body=b"1"))
    assert (await stage.store.resume_held()).resumed == 0
    answer = await stage.store.signal(SignalDraft(id=id, name="go", body=b"2"))
    assert (answer.code, answer.duplicate) == (None, False)
    # Some stores resume it with the signal.
    assert answer.resumed or (await stage.store.resume_held()).resumed == 1
    assert (await stage.take()).id == id
    assert (await stage.store.examine(), await stage.store.holds([id]))[1] == []


async def test_a_signal_does_not_resume_a_message_with_another_hold(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    holds = (Hold(kind="signal", name="go"), Hold(kind="moment", delay=3600.0))
    await stage.store.wait(ask(leased, *holds))
    await stage.store.resume_held()
    answer = await stage.store.signal(SignalDraft(id=id, name="go", body=b"2"))
    assert not answer.resumed
    assert (await stage.store.resume_held()).resumed == 0
    await stage.travel(3601)
    assert (await stage.store.resume_held()).resumed == 1


async def test_a_signal_of_a_keyed_message_keeps_its_turn(stage: Stage) -> None:
    id = await stage.publish(ordering_key="k")
    leased = await stage.take()
    await stage.store.wait(ask(leased, Hold(kind="signal", name="go")))
    await stage.store.resume_held()
    later = await stage.publish(ordering_key="k")
    await stage.store.signal(SignalDraft(id=id, name="go", body=b"2"))
    await stage.store.resume_held()
    assert (await stage.take()).id == id
    assert await stage.claim() == []
    assert later > id


async def test_the_event_of_a_signal_is_stored_with_it(stage: Stage) -> None:
    id = await stage.publish()
    signals = [SignalDraft(id=id, name="go", body=b"2", key="k", event=b"{}")] * 2
    stored, repeated = [await stage.store.signal(each) for each in signals]
    assert (stored.duplicate, repeated.duplicate) == (False, True)
    leased = await stage.take()
    await stage.store.wait(ask(leased, Hold(kind="signal", name="other")))
    await stage.store.resume_held()
    again = await stage.store.signal(SignalDraft(id=id, name="other", body=b"2", event=b"[]"))
    now = await stage.store.now()
    found = await stage.store.documents("live_event", "", 10)
    # Ids are not padded, so names of one microsecond are in no order.
    assert {each.name: each.body for each in found} == {
        f"{now:020d}-signal-{stored.id}": b"{}",
        f"{now:020d}-signal-{again.id}": b"[]",
    }
    assert {each.expires_at for each in found} == {now + 60_000_000}


async def test_a_signal_stored_before_the_wait_resumes_it(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.store.signal(SignalDraft(id=id, name="go", body=b"2"))
    assert (await stage.store.resume_held()).resumed == 0
    await stage.store.wait(ask(leased, Hold(kind="signal", name="go")))
    assert (await stage.store.resume_held()).resumed == 1


async def test_a_signal_hold_ends_at_its_timeout(stage: Stage) -> None:
    await stage.publish()
    await stage.store.wait(ask(await stage.take(), Hold(kind="signal", name="go", delay=10.0)))
    await stage.travel(11)
    assert (await stage.store.resume_held()).resumed == 1


async def test_a_signal_with_a_key_is_stored_once(stage: Stage) -> None:
    id = await stage.publish()
    first = await stage.store.signal(SignalDraft(id=id, name="go", body=b"1", key="k"))
    same = await stage.store.signal(SignalDraft(id=id, name="go", body=b"1", key="k"))
    other = await stage.store.signal(SignalDraft(id=id, name="go", body=b"2", key="k"))
    assert (same.id, same.duplicate, same.code) == (first.id, True, None)
    assert other.code == "IDEMPOTENCY_CONFLICT"
    (stored,) = await stage.store.signals(id)
    assert (stored.name, stored.body, stored.key, stored.consumed) == ("go", b"1", "k", False)


@pytest.mark.parametrize("waits", [False, True])
async def test_a_message_has_1000_signals_that_it_has_not_received(
    stage: Stage, waits: bool
) -> None:
    id = await stage.publish()
    if waits:
        await stage.store.wait(ask(await stage.take(), Hold(kind="signal", name="other")))
    draft = SignalDraft(id=id, name="go", body=b"1")
    answers = [await stage.store.signal(draft) for _ in range(1_001)]
    assert {answer.code for answer in answers[:-1]} == {None}
    assert answers[-1].code == "SIGNALS_FULL"
    if waits:
        return
    leased = await stage.take()
    step = StepRecord(name="go", key="1", kind="signal")
    await stage.store.save_steps(
        [StepSave(id=id, fence=leased.fence, step=step, consumes=answers[0].id)]
    )
    assert (await stage.store.signal(draft)).code is None


async def test_a_look_takes_a_limited_number_of_messages(stage: Stage) -> None:
    plain = await make_entry(stage)
    held = await make_entry(stage, flags=Flag.HELD, after=After(entries=(0,)))
    await publish(stage, plain, held, held, held)
    await stage.broker.complete(await stage.take())
    looks = [await stage.store.resume_held(2) for _ in range(2)]
    assert [(each.resumed, each.more) for each in looks] == [(2, True), (1, False)]


async def test_an_ended_message_takes_no_signal(stage: Stage) -> None:
    done = await stage.completed()
    assert (await stage.store.signal(SignalDraft(id=done, name="go", body=b""))).code == (
        "INVALID_STATE"
    )
    unknown = SignalDraft(id=done + 1_000, name="go", body=b"")
    assert (await stage.store.signal(unknown)).code == "NOT_FOUND"
    dead = await stage.dead()
    assert (await stage.store.signal(SignalDraft(id=dead, name="go", body=b""))).code is None


async def test_children_are_published_with_the_wait_and_their_ends_resume_it(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    entry = await make_entry(stage)
    step = StepRecord(name="gather", key="0", kind="gather", done=False)
    gather = Hold(kind="after", after=After(entries=(0, 1), policy="settled"))
    await stage.store.wait(ask(leased, gather, children=(entry, entry), children_step=step))
    (record,) = (await stage.store.steps(id)).steps
    first, second = json.loads(record.body)
    assert (await stage.store.resume_held()).resumed == 0
    assert await stage.drain() == [first, second]
    assert (await stage.store.resume_held()).resumed == 1
    resumed = await stage.take()
    assert resumed.id == id
    assert resumed.flags & Flag.STEPS
    states = {edge.awaited_id: edge.state for edge in await stage.store.edges(id)}
    assert states == {first: State.COMPLETED, second: State.COMPLETED}


async def test_a_refused_child_undoes_the_wait(stage: Stage) -> None:
    await stage.publish(name="taken")
    leased = await stage.take()
    entry = await make_entry(stage, name="taken")
    with pytest.raises(ChildRefused):
        await stage.store.wait(ask(leased, SLEEP, children=(await make_entry(stage), entry)))
    assert await state_of(stage, leased.id) is State.CLAIMED
    assert await stage.claim() == []


@pytest.mark.parametrize("dedup", [Dedup("k", None), Dedup("k")])
async def test_a_child_that_is_the_waiter_itself_is_refused(stage: Stage, dedup: Dedup) -> None:
    id = await stage.publish(b"same", dedup=dedup)
    leased = await stage.take()
    again = Draft(body=b"same", dedup=dedup)
    after = Hold(kind="after", after=After(entries=(0, 1)))
    plan = WaitPlan(reason="after", holds=(after,), children=(Draft(), again))
    with pytest.raises(WaitsForItself, match="child 2"):
        await stage.broker.waits.suspend(leased, plan)
    assert await state_of(stage, id) is State.CLAIMED
    assert await stage.claim() == []
    assert await stage.store.edges(id) == []


async def test_a_message_that_was_removed_is_waited_for_no_longer(stage: Stage) -> None:
    gone = await stage.completed()
    await stage.travel(100)
    assert await stage.prune(50) == 1
    (waiter,) = await publish(
        stage, await make_entry(stage, flags=Flag.HELD, after=After(ids=(gone,)))
    )
    assert (await stage.store.resume_held()).resumed == 1
    leased = await stage.take()
    assert await stage.broker.waits.read_parents(leased) == [AwaitedOutcome(gone, State.COMPLETED)]
    assert leased.id == waiter


async def test_an_end_is_noted_before_its_message_is_removed(stage: Stage) -> None:
    """Also when no process has run for longer than the retention."""
    held = await make_entry(stage, flags=Flag.HELD, after=After(entries=(0,)))
    first, waiter = await publish(stage, await make_entry(stage), held)
    await stage.broker.settle(await stage.take(), Fail("no"))
    await stage.travel(8 * DAY)
    await Pruner(stage.store, stage.broker.directory, "test").tick()
    assert await stage.state(waiter) is State.CANCELLED
    with pytest.raises(Archived):
        await stage.store.get(first)


async def test_a_message_that_waits_for_others_is_held_until_all_completed(stage: Stage) -> None:
    plain = await make_entry(stage)
    last = await make_entry(stage, flags=Flag.HELD, after=After(entries=(0, 1)))
    first, second, third = await publish(stage, plain, plain, last)
    assert await state_of(stage, third) is State.SCHEDULED
    assert await stage.drain() == [first, second]
    assert (await stage.store.resume_held()).resumed == 1
    assert await stage.drain() == [third]


async def test_a_failed_dependency_cancels_those_that_need_it(stage: Stage) -> None:
    plain = await make_entry(stage)
    middle = await make_entry(stage, flags=Flag.HELD, after=After(entries=(0,)))
    last = await make_entry(stage, flags=Flag.HELD, after=After(entries=(1,)))
    settled = await make_entry(
        stage, flags=Flag.HELD, after=After(entries=(0, 1), policy="settled")
    )
    ids = await publish(stage, plain, middle, last, settled)
    await stage.store.cancel([ids[0]])
    for _ in range(3):
        await stage.store.resume_held()
    states = [await state_of(stage, id) for id in ids]
    assert states == [State.CANCELLED, State.CANCELLED, State.CANCELLED, State.READY]
    record = await stage.store.get(ids[1])
    assert record is not None
    assert record.timeline[-1].reason == "dependency_failed"


async def test_any_needs_as_many_as_it_says(stage: Stage) -> None:
    plain = await make_entry(stage)
    needs = After(entries=(0, 1, 2), policy="any", need=2)
    *_, id = await publish(
        stage, plain, plain, plain, await make_entry(stage, flags=Flag.HELD, after=needs)
    )
    await stage.broker.complete(await stage.take())
    assert (await stage.store.resume_held()).resumed == 0
    await stage.broker.complete(await stage.take())
    assert (await stage.store.resume_held()).resumed == 1
    assert await state_of(stage, id) is State.READY


async def test_a_dead_dependency_keeps_the_edge_open_until_it_is_redriven(stage: Stage) -> None:
    plain = await make_entry(stage)
    held = await make_entry(stage, flags=Flag.HELD, after=After(entries=(0,)))
    first, second = await publish(stage, plain, held)
    await stage.broker.settle(await stage.take(), SettleReject("no good"))
    await stage.store.resume_held()
    assert await state_of(stage, second) is State.SCHEDULED
    await stage.store.redrive([first])
    assert await stage.drain() == [first]
    await stage.store.resume_held()
    assert await stage.drain() == [second]


async def test_a_dead_dependency_settles_if_asked_to(stage: Stage) -> None:
    plain = await make_entry(stage)
    after = After(entries=(0,), policy="settled", on_dead="settle")
    await publish(stage, plain, await make_entry(stage, flags=Flag.HELD, after=after))
    await stage.broker.settle(await stage.take(), SettleReject("no good"))
    assert (await stage.store.resume_held()).resumed == 1


async def test_an_empty_group_is_done_at_once(stage: Stage) -> None:
    await publish(stage, await make_entry(stage, flags=Flag.HELD, after=After()))
    assert (await stage.store.resume_held()).resumed == 1


async def test_a_delayed_message_with_dependencies_waits_for_both(stage: Stage) -> None:
    plain = await make_entry(stage)
    held = await make_entry(stage, flags=Flag.HELD, after=After(entries=(0,)), delay=30.0)
    first, second = await publish(stage, plain, held)
    assert await stage.drain() == [first]
    assert (await stage.store.resume_held()).resumed == 0
    assert await state_of(stage, second) is State.SCHEDULED
    await stage.travel(31)
    assert (await stage.store.resume_held()).resumed == 1


async def test_cancelling_a_waiting_message_is_immediate_and_leaves_no_hold(stage: Stage) -> None:
    id = await stage.publish()
    await stage.store.wait(ask(await stage.take(), SLEEP))
    await stage.store.cancel([id])
    assert await state_of(stage, id) is State.CANCELLED
    assert await stage.store.holds([id]) == []
    await stage.travel(61)
    assert (await stage.store.resume_held()).resumed == 0


async def test_a_waiting_message_expires(stage: Stage) -> None:
    id = await stage.publish(ttl=30.0)
    await stage.store.wait(ask(await stage.take(), SLEEP))
    await stage.travel(31)
    assert await stage.store.expire(10) == 1
    assert await state_of(stage, id) is State.EXPIRED


async def test_a_held_message_is_ended_once_from_outside(stage: Stage) -> None:
    id = await stage.publish()
    await stage.store.wait(ask(await stage.take(), Hold(kind="signal", name="decision")))
    end = HeldEnd(id=id, verb=Verb.DECIDE, state=State.COMPLETED, reason="ok", result=b"yes")
    first, second = await stage.store.end_held([end, replace(end, result=b"no")])
    assert (first.kind, first.state) == (AnswerKind.DONE, State.COMPLETED)
    assert (second.kind, second.state) == (AnswerKind.INVALID, State.COMPLETED)
    assert await stage.store.result(id) == b"yes"
    record = await stage.store.get(id)
    assert record is not None
    assert (record.timeline[-1].verb, record.timeline[-1].final) == (Verb.DECIDE, True)
    ready = await stage.publish()
    (answer,) = await stage.store.end_held([replace(end, id=ready)])
    assert (answer.kind, answer.state) == (AnswerKind.INVALID, State.READY)


async def test_a_keyed_message_keeps_its_turn_while_it_waits(stage: Stage) -> None:
    first = await stage.publish(ordering_key="k")
    second = await stage.publish(ordering_key="k")
    await stage.store.wait(ask(await stage.take(), SLEEP))
    await stage.store.resume_held()
    assert await stage.claim() == []
    await stage.travel(61)
    await stage.store.resume_held()
    assert await stage.drain() == [first, second]


async def test_a_keyed_message_with_dependencies_gets_in_line_when_they_ended(
    stage: Stage,
) -> None:
    plain = await make_entry(stage)
    keyed = {"flags": Flag.HELD | Flag.KEYED, "ordering_key": "k", "meta": '{"ordering_key":"k"}'}
    first, held = await publish(
        stage, plain, await make_entry(stage, after=After(entries=(0,)), **keyed)
    )
    other = await stage.publish(ordering_key="k")
    assert await stage.drain() == [first, other]
    await stage.store.resume_held()
    assert await stage.drain() == [held]


async def test_a_step_is_stored_once_under_its_fence(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    step = StepRecord(name="charge", key="0", body=b"1", position=1)
    save = StepSave(id=id, fence=leased.fence, step=step)
    stale = replace(save, fence=leased.fence + 1)
    again = replace(save, step=replace(step, body=b"2"))
    lost, done, repeated = await stage.store.save_steps([stale, save, again])
    assert lost.kind is AnswerKind.LOST
    assert done.kind is AnswerKind.DONE
    assert (repeated.kind, repeated.step) == (AnswerKind.ALREADY, done.step)
    assert (await stage.store.steps(id)).steps == [done.step]
    await stage.broker.complete(leased)
    (late,) = await stage.store.save_steps([replace(save, step=replace(step, name="late"))])
    assert late.kind is AnswerKind.LOST


async def test_later_steps_of_a_run_are_stored_once_under_its_fence(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    signal = await stage.store.signal(SignalDraft(id=id, name="go", body=b"1"))
    first = StepRecord(name="charge", key="0", position=1)
    begun = StepRecord(name="go", key="0", kind="signal", done=False, position=2)
    ended = replace(begun, done=True, body=b"1", position=9)
    repeated = replace(ended, body=b"2")
    saves = [StepSave(id=id, fence=leased.fence, step=each) for each in (first, begun, ended)]
    saves[2] = replace(saves[2], consumes=signal.id)
    stale = replace(saves[0], fence=leased.fence + 1, step=replace(first, name="stale"))
    saves += [stale, replace(saves[2], step=repeated)]
    answers = [(await stage.store.save_steps([save]))[0] for save in saves]
    done, already, lost = AnswerKind.DONE, AnswerKind.ALREADY, AnswerKind.LOST
    assert [each.kind for each in answers] == [done, done, done, lost, already]
    assert (await stage.store.steps(id)).steps == [answers[0].step, answers[2].step]
    assert [(each.step.position, each.step.body) for each in answers[2::2] if each.step] == (
        [(2, b"1"), (2, b"1")]
    )
    assert [each.consumed for each in await stage.store.signals(id)] == [True]


async def test_steps_survive_a_retry_and_a_redrive(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    step = StepRecord(name="charge", key="0", body=b"1", position=1)
    await stage.store.save_steps([StepSave(id=id, fence=leased.fence, step=step)])
    await stage.broker.settle(leased, SettleReject("no good"))
    await stage.store.redrive([id])
    again = await stage.take()
    assert again.flags & Flag.STEPS
    assert [each.body for each in (await stage.store.steps(id)).steps] == [b"1"]
    assert await stage.store.forget_steps(id, 1) == []
    await stage.broker.settle(again, SettleReject("no good"))
    assert [each.name for each in await stage.store.forget_steps(id, 1)] == ["charge"]
    assert (await stage.store.steps(id)).steps == []


async def test_a_step_publishes_its_message_once(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    step = StepRecord(name="enqueue", key="0", kind="enqueue", position=1)
    save = StepSave(id=id, fence=leased.fence, step=step, entry=await make_entry(stage))
    done, repeated = await stage.store.save_steps([save, save])
    assert done.step is not None
    assert done.step == repeated.step
    assert [each.id for each in await stage.claim(limit=5)] == [json.loads(done.step.body)]


async def test_a_step_consumes_its_signal(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    stored = await stage.store.signal(SignalDraft(id=id, name="go", body=b"1"))
    step = StepRecord(name="go", key="0", kind="signal", body=b"1")
    save = StepSave(id=id, fence=leased.fence, step=step, consumes=stored.id)
    await stage.store.save_steps([save])
    assert [each.consumed for each in await stage.store.signals(id)] == [True]
    await stage.store.wait(ask(leased, Hold(kind="signal", name="go")))
    assert (await stage.store.resume_held()).resumed == 0


def make_receiver(key: str = "1") -> StepRecord:
    return StepRecord(name="go", key=key, kind="signal", position=1, done=False)


async def wait_for_go(stage: Stage, *receivers: StepRecord) -> int:
    id = await stage.publish()
    leased = await stage.take()
    await stage.store.wait(ask(leased, Hold(kind="signal", name="go"), steps=receivers))
    await stage.store.resume_held()
    return id


async def read_received(stage: Stage, id: int) -> tuple[list[bytes], list[bytes]]:
    """Returns the bodies of the steps that are done, and of the signals not received yet."""
    log, signals = await stage.store.steps(id), await stage.store.signals(id)
    done = [step.body for step in log.steps if step.done]
    return done, [each.body for each in signals if not each.consumed]


async def test_a_signal_is_received_by_its_step_or_left_for_it(stage: Stage) -> None:
    id = await wait_for_go(stage, make_receiver())
    await stage.store.signal(SignalDraft(id=id, name="go", body=b"1"))
    await stage.store.signal(SignalDraft(id=id, name="go", body=b"2"))
    # Some stores record it with the signal, in others its run does.
    assert await read_received(stage, id) in (([b"1"], [b"2"]), ([], [b"1", b"2"]))
    await stage.store.resume_held()
    assert (await stage.take()).id == id


async def test_steps_that_wait_for_the_same_signal_are_left_to_their_run(stage: Stage) -> None:
    id = await wait_for_go(stage, make_receiver("1"), make_receiver("2"))
    await stage.store.signal(SignalDraft(id=id, name="go", body=b"1"))
    assert await read_received(stage, id) == ([], [b"1"])


async def test_a_signal_does_not_overtake_an_earlier_one(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    await stage.store.signal(SignalDraft(id=id, name="go", body=b"1"))
    hold = Hold(kind="signal", name="go")
    await stage.store.wait(ask(leased, hold, steps=(make_receiver(),)))
    await stage.store.signal(SignalDraft(id=id, name="go", body=b"2"))
    assert await read_received(stage, id) == ([], [b"1", b"2"])


async def test_facts_count_waits_and_steps_since_the_last_redrive(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    assert await stage.store.wait_facts(id, leased.fence) == WaitFacts()
    step = StepRecord(name="charge", key="0", position=1)
    await stage.store.wait(ask(leased, Hold(kind="moment", delay=0.0), steps=(step,)))
    await stage.store.resume_held()
    leased = await stage.take()
    facts = await stage.store.wait_facts(id, leased.fence)
    assert (facts.waits, facts.steps, facts.recorded, len(facts.recent)) == (1, 1, False, 1)
    await stage.broker.settle(leased, SettleReject("no good"))
    await stage.travel(1)
    await stage.store.redrive([id])
    facts = await stage.store.wait_facts(id, (await stage.take()).fence)
    assert (facts.waits, facts.steps) == (0, 0)


async def test_pruning_a_message_removes_what_it_stored(stage: Stage) -> None:
    id = await stage.publish()
    leased = await stage.take()
    step = StepRecord(name="charge", key="0", position=1)
    await stage.store.save_steps([StepSave(id=id, fence=leased.fence, step=step)])
    await stage.store.signal(SignalDraft(id=id, name="go", body=b"1"))
    await stage.broker.complete(leased)
    await stage.travel(100)
    assert await stage.prune(50) == 1
    assert (await stage.store.steps(id)).steps == []
    assert await stage.store.signals(id) == []


async def test_a_result_is_kept_while_a_message_waits_for_it(stage: Stage) -> None:
    await stage.queue("short", keep_results=60.0)
    plain = Entry(await stage.queue_id("short"), "message", b"")
    held = await make_entry(stage, flags=Flag.HELD, after=After(entries=(0,)), delay=7200.0)
    first, second = await publish(stage, plain, held)
    await stage.broker.complete(await stage.take("short"), b"42")
    await stage.travel(3600)
    await stage.store.sweep_keys(100)
    assert await stage.store.awaited_results(second) == {first: b"42"}
    await stage.store.cancel([second])
    await stage.travel(3600)
    await stage.store.sweep_keys(100)
    assert await stage.store.awaited_results(second) == {}


async def test_an_awaited_message_without_a_result_has_a_null(stage: Stage) -> None:
    """So a result that is no longer stored can be told from None."""
    plain = await make_entry(stage)
    keyed = await make_entry(stage, ordering_key="k", flags=Flag.KEYED)
    held = await make_entry(stage, flags=Flag.HELD, after=After(entries=(0, 1, 2, 3, 4)))
    *ids, waiter = await publish(stage, plain, plain, plain, keyed, plain, held)
    first, second, *rest = await stage.claim(limit=5)
    await stage.broker.complete(first)
    await stage.broker.complete(second, b"42")
    await stage.store.complete([Completion(each.id, each.fence) for each in rest])
    expected = {id: b"null" for id in ids} | {second.id: b"42"}
    assert await stage.store.awaited_results(waiter) == expected


async def test_a_completed_message_that_is_awaited_later_has_a_null(stage: Stage) -> None:
    await stage.queue("short", keep_results=60.0)
    first = await stage.completed("short")
    await stage.travel(50)
    soon = await make_entry(stage, flags=Flag.HELD, after=After(ids=(first,)))
    (waiter,) = await publish(stage, soon)
    assert await stage.store.awaited_results(waiter) == {first: b"null"}
    gone = await stage.completed("short")
    await stage.travel(70)
    (late,) = await publish(stage, replace(soon, after=After(ids=(gone,))))
    assert await stage.store.awaited_results(late) == {}


async def test_a_result_outlives_its_message_while_another_waits_for_it(stage: Stage) -> None:
    plain = await make_entry(stage)
    held = await make_entry(stage, flags=Flag.HELD, after=After(entries=(0,)), delay=9.0 * DAY)
    first, _ = await publish(stage, plain, held)
    await stage.broker.complete(await stage.take(), b"42")
    await stage.store.resume_held()
    await stage.travel(8 * DAY)
    await stage.prune(7 * DAY)
    await stage.store.sweep_keys(100)
    with pytest.raises(Archived):
        await stage.store.get(first)
    await stage.travel(DAY + 1)
    assert (await stage.store.resume_held()).resumed == 1
    assert await stage.broker.waits.read_parents(await stage.take()) == [
        AwaitedOutcome(first, State.COMPLETED, b"42")
    ]


async def test_a_change_publishes_messages_that_wait_for_others(stage: Stage) -> None:
    plain = await make_entry(stage)
    held = await make_entry(stage, flags=Flag.HELD, after=After(entries=(0,)))
    changed = await stage.store.advance(Change(entries=(plain, held)))
    assert changed is not None
    first, second = [each.id for each in changed.published]
    assert await stage.drain() == [first]
    await stage.store.resume_held()
    assert await stage.drain() == [second]


async def test_a_message_that_is_redelivered_ends_its_edge_once(stage: Stage) -> None:
    plain = await make_entry(stage)
    held = await make_entry(stage, flags=Flag.HELD, after=After(entries=(0, 1)))
    *_, id = await publish(stage, plain, plain, held)
    first = await stage.take()
    await stage.broker.settle(first, Release())
    assert len(await stage.drain()) == 2
    for _ in range(3):
        await stage.store.resume_held()
    assert await stage.drain() == [id]


async def test_waiting_messages_are_not_promoted_and_count_as_scheduled(stage: Stage) -> None:
    queue_id = await stage.queue_id()
    await stage.publish()
    await stage.store.wait(ask(await stage.take(), Hold(kind="moment", delay=0.0)))
    assert (await stage.store.depths(0))[queue_id, "scheduled"] == 1
    assert await stage.promote() == 0
    assert (await stage.store.resume_held()).resumed == 1


async def test_a_child_that_is_held_stays_held(stage: Stage) -> None:
    await stage.publish()
    leased = await stage.take()
    child = await make_entry(stage, flags=Flag.HELD, after=After(policy="decision"))
    step = StepRecord(name="approve", key="1", kind="human", done=False)
    wait = Hold(kind="after", after=After(entries=(0,), policy="settled"))
    await stage.store.wait(ask(leased, wait, children=(child,), children_step=step))
    (record,) = (await stage.store.steps(leased.id)).steps
    (id,) = json.loads(record.body)
    await stage.store.signal(SignalDraft(id=id, name="go", body=b"1"))
    assert (await stage.store.resume_held()).resumed == 0
    end = HeldEnd(id=id, verb=Verb.DECIDE, state=State.COMPLETED, result=b"yes")
    await stage.store.end_held([end])
    assert (await stage.store.resume_held()).resumed == 1
    assert await stage.store.awaited_results(leased.id) == {id: b"yes"}


async def test_doctor_finds_no_torn_wait(stage: Stage) -> None:
    await stage.publish()
    await stage.store.wait(ask(await stage.take(), SLEEP))
    waits = [check for check in await stage.store.examine() if check.name == "waits"]
    assert all(check.ok for check in waits)
    await stage.travel(61)
    await stage.store.resume_held()
    assert all(check.ok for check in await stage.store.examine() if check.name == "waits")


async def test_doctor_misses_no_end_that_was_announced(stage: Stage) -> None:
    plain = await make_entry(stage)
    last = await make_entry(stage, flags=Flag.HELD, after=After(entries=(0, 1)))
    await publish(stage, plain, plain, last)
    for _ in range(2):
        await stage.broker.complete(await stage.take())
        for _ in range(2):
            (waits,) = [each for each in await stage.store.examine() if each.name == "waits"]
            assert waits.ok, waits.text
            await stage.store.resume_held()


async def test_a_message_that_waits_too_often_for_its_queue_is_dead(stage: Stage) -> None:
    await stage.queue("work", max_waits=2)
    id = await stage.publish(queue="work")
    plan = WaitPlan(reason="sleep", holds=(SLEEP,))
    for _ in range(3):
        await stage.broker.waits.suspend(await stage.take("work"), plan)
        if (looking := stage.broker.waits.looking) is not None:
            await looking
        await stage.travel(61)
        await stage.store.resume_held()
    record = await stage.record(id)
    assert (record.state, record.reason) == (State.DEAD, "max_waits")
    await stage.admin.redrive(id)
    await stage.broker.waits.suspend(await stage.take("work"), plan)
    assert await stage.state(id) is State.SCHEDULED
