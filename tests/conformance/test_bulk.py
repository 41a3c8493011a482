"""Bulk actions: one operation on many messages, in steps that can stop at any point."""

import time
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.agents.bulk_runner import BulkRunner
from penstock.broker.bulk import reader
from penstock.broker.bulk.actions import Bulk
from penstock.broker.credentials import Credentials
from penstock.errors import (
    FieldMasked,
    Forbidden,
    InvalidInput,
    InvalidState,
    NotFound,
    TooManyBulks,
)
from penstock.model.bulk import BulkAction, BulkActor, BulkState
from penstock.model.documents import AuditEntry, acting
from penstock.model.message import Draft, Nack, Record, SettleReject, State
from penstock.rules.access import Key
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


def make_runner(stage: Stage, by: str = "ann") -> BulkRunner:
    return BulkRunner(stage.store, stage.broker.directory, by)


async def run(stage: Stage, action: BulkAction, by: str = "ann") -> BulkAction:
    """Runs the agent until the action is not underway."""
    runner = make_runner(stage, by)
    for _ in range(200):
        action = await stage.broker.bulk.get(action.id)
        if action.state not in (BulkState.RUNNING, BulkState.COUNTING):
            return action
        runner.due.clear()
        await runner.tick()
    raise AssertionError(f"{action} does not end")


async def start(stage: Stage, verb: str, filter: str, **how: Any) -> BulkAction:
    return await run(stage, await stage.broker.bulk.start(verb, filter=filter, **how))


async def test_dead_letters_that_match_are_redriven(stage: Stage) -> None:
    await stage.queue("other")
    ids = [await stage.dead(type="mail") for _ in range(3)]
    others = [await stage.dead(type="report"), await stage.dead("other", type="mail")]
    action = await start(stage, "redrive", "state:dead queue:default type:mail")
    assert (action.state, action.counts.done, action.counts.skipped) == (BulkState.DONE, 3, {})
    assert sorted(await stage.drain()) == ids
    assert [await stage.state(id) for id in others] == [State.DEAD] * 2
    assert (await stage.record(ids[0])).timeline[1].reason == f"bulk:{action.id}"


async def test_messages_given_by_id_are_read_by_their_size(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "MAX_BATCH_BYTES", 2_000)
    monkeypatch.setattr(reader, "MIN_READ", 2)
    get_many, sizes = stage.store.get_many, list[int]()

    async def get_some(ids: Sequence[int]) -> list[Record]:
        sizes.append(len(ids))
        return await get_many(ids)

    monkeypatch.setattr(stage.store, "get_many", get_some)
    bodies = [b"x" * 900, b"", b"x" * 900, b"x" * 900, b"x" * 9_000, b"x" * 900]
    ids = [await stage.publish(body) for body in bodies]
    action = await run(stage, await stage.broker.bulk.start("cancel", ids=ids))
    assert (action.state, action.counts.done, sizes) == (BulkState.DONE, 6, [3, 1, 1, 1])


async def test_finished_messages_are_published_anew_once(stage: Stage) -> None:
    ids = [await stage.completed() for _ in range(3)]
    action = await start(stage, "redrive", "state:completed")
    again = await start(stage, "redrive", "state:completed")
    assert (action.counts.done, again.counts.done) == (3, 3)
    parents = [(await stage.record(id)).message.meta.parent_id for id in await stage.drain()]
    assert sorted(parents, key=str) == sorted(ids * 2, key=str)


async def test_waiting_messages_are_cancelled_and_claimed_ones_asked_to_stop(stage: Stage) -> None:
    dead = await stage.dead()
    held = await stage.publish()
    await stage.take()
    waiting = [await stage.publish(), await stage.publish(delay=60)]
    action = await start(stage, "cancel", "queue:default")
    assert action.counts.done == 3
    assert action.counts.skipped == {"dead": 1}
    assert [await stage.state(id) for id in waiting] == [State.CANCELLED] * 2
    assert (await stage.record(held)).cancel_requested
    assert await stage.state(dead) is State.DEAD


async def test_waiting_and_dead_messages_are_purged(stage: Stage) -> None:
    ids = [await stage.publish(delay=60), await stage.dead(), await stage.publish()]
    assert (await start(stage, "purge", "state:unfinished,dead")).counts.done == 3
    assert [(await stage.record(id)).reason for id in ids] == ["purged"] * 3


async def test_messages_are_moved_to_another_queue(stage: Stage) -> None:
    await stage.queue("other")
    ids = [await stage.publish(bytes([number]), name=str(number)) for number in range(5)]
    action = await start(stage, "move", "queue:default", queue="other")
    assert (action.counts.done, action.counts.skipped) == (5, {})
    assert [(await stage.record(id)).reason for id in ids] == ["moved"] * 5
    leased = await stage.claim("other", limit=10)
    assert sorted(each.body for each in leased) == [bytes([number]) for number in range(5)]


async def test_messages_are_reprioritised(stage: Stage) -> None:
    await stage.queue("lines", ordering="fifo")
    await stage.publish(queue="lines")
    first, *low = [await stage.publish(priority=priority) for priority in (5, 1, 1)]
    action = await start(stage, "reprioritise", "priority<5", priority=9)
    assert (action.counts.done, action.counts.skipped) == (2, {"ordering fifo": 1})
    assert await stage.drain() == [*low, first]


@pytest.mark.parametrize("filter", ["queue:default", "state:ready"])
async def test_a_message_that_changes_meanwhile_is_left_alone(stage: Stage, filter: str) -> None:
    changed, same = await stage.publish(), await stage.publish()
    action = await stage.broker.bulk.start("cancel", filter=filter)
    await stage.broker.settle(await stage.take(), Nack(delay=0))
    later = await stage.publish()
    action = await run(stage, action)
    assert (action.counts.done, action.counts.skipped) == (1, {"changed since": 2})
    assert [await stage.state(id) for id in (changed, same, later)] == [
        State.READY, State.CANCELLED, State.READY,
    ]  # fmt: skip


async def test_a_message_that_died_again_meanwhile_is_left_alone(stage: Stage) -> None:
    changed, same = await stage.dead(), await stage.dead()
    action = await stage.broker.bulk.start("redrive", filter="state:dead")
    await stage.broker.admin.redrive(changed)
    await stage.broker.settle(await stage.take(), SettleReject("again"))
    action = await run(stage, action)
    assert (action.counts.done, action.counts.skipped) == (1, {"changed since": 1})
    assert [await stage.state(id) for id in (changed, same)] == [State.DEAD, State.READY]


async def test_messages_are_selected_by_their_ids(stage: Stage) -> None:
    ids = [await stage.publish() for _ in range(4)]
    action = await stage.broker.bulk.start("cancel", ids=[*ids[:3], ids[0], 10**9])
    action = await run(stage, action)
    assert (action.counts.done, action.state) == (3, BulkState.DONE)
    assert action.counts.skipped == {"not found": 1}
    assert await stage.drain() == ids[3:]


async def test_a_dry_run_counts_and_changes_nothing(stage: Stage) -> None:
    dead = await stage.dead()
    ids = [await stage.publish() for _ in range(3)]
    action = await stage.broker.bulk.start("cancel", filter="queue:default", dry_run=True)
    assert (action.state, action.counts.done) == (BulkState.DONE, 3)
    assert action.counts.skipped == {"dead": 1}
    assert [await stage.state(id) for id in (*ids, dead)] == [State.READY] * 3 + [State.DEAD]
    assert await stage.broker.bulk.list_actions() == []


async def test_a_long_dry_run_is_counted_by_the_agent(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.bulk.actions.MAX_SCANNED", 2)
    await stage.publish_each(5)
    token = acting.set(AuditEntry(subject="ann", tenant="default", verb="bulk", target="/v1/bulk"))
    try:
        action = await stage.broker.bulk.start("cancel", filter="queue:default", dry_run=True)
    finally:
        acting.reset(token)
    assert action.state is BulkState.COUNTING
    action = await run(stage, action)
    assert (action.state, action.counts.done) == (BulkState.DONE, 5)
    ended, started = await stage.store.acts()
    assert started.detail == f"bulk:{action.id} cancel (dry run) queue:default"
    assert ended.detail == "cancel (dry run): 5 would be done, 0 skipped, 0 failed"
    assert len(await stage.drain()) == 5


async def test_a_long_dry_run_leaves_out_what_changes_meanwhile(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.bulk.actions.MAX_SCANNED", 2)
    await stage.publish_each(5)
    action = await stage.broker.bulk.start("cancel", filter="state:ready", dry_run=True)
    # Two of these were counted at once.
    for leased in [await stage.take() for _ in range(3)]:
        await stage.broker.settle(leased, Nack(delay=0))
    action = await run(stage, action)
    assert (action.counts.done, action.counts.skipped) == (4, {"changed since": 1})


async def test_an_action_goes_on_where_a_killed_process_stopped(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.bulk.reader.MAX_BATCH", 3)
    done = [await stage.completed("default") for _ in range(2)]
    ids = await stage.publish_each(10)
    action = await stage.broker.bulk.start("cancel", filter="queue:default")
    first = make_runner(stage, "killed")
    await first.tick()
    assert 0 < (await stage.broker.bulk.get(action.id)).counts.done < len(ids)
    await make_runner(stage, "bob").tick()
    assert (await stage.broker.bulk.get(action.id)).owner == "killed"
    await stage.travel(31)
    action = await run(stage, action, "bob")
    assert (action.counts.done, action.counts.skipped) == (10, {"completed": 2})
    assert [await stage.state(id) for id in done] == [State.COMPLETED] * 2
    assert await stage.drain() == []


async def test_an_action_killed_at_the_end_of_a_pass_counts_nothing_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.completed()
    ids = await stage.publish_each(3)
    action = await stage.broker.bulk.start("cancel", filter="queue:default")
    first = make_runner(stage, "killed")

    async def die(*_: object) -> None:
        raise RuntimeError("killed")

    monkeypatch.setattr(first.steps, "finish_pass", die)
    with pytest.raises(RuntimeError):
        await first.tick()
    await stage.travel(31)
    action = await run(stage, action, "bob")
    assert (action.counts.done, action.counts.skipped) == (len(ids), {"completed": 1})


@pytest.mark.parametrize("filter", ["queue:nowhere", "state:dead", "created>2999-01-01"])
async def test_an_action_on_nothing_is_done(stage: Stage, filter: str) -> None:
    ids = await stage.publish_each(2)
    action = await run(stage, await stage.broker.bulk.start("cancel", filter=filter))
    assert (action.state, action.counts.matched) == (BulkState.DONE, 0)
    assert await stage.drain() == ids


async def test_an_action_on_everything_reaches_each_queue_of_its_scope(stage: Stage) -> None:
    await stage.queue("mail")
    await stage.publish_each(150)
    await stage.dead("mail")
    await stage.publish(queue="mail")
    action = await run(stage, await stage.broker.bulk.start("purge", filter="id>0"))
    assert (action.state, action.counts.done) == (BulkState.DONE, 152)
    assert (await stage.admin.search("-state:cancelled")).records == []


async def test_a_paused_action_waits_until_it_is_resumed(stage: Stage) -> None:
    ids = await stage.publish_each(3)
    action = await stage.broker.bulk.start("cancel", filter="queue:default")
    assert (await stage.broker.bulk.pause(action.id)).state is BulkState.PAUSED
    assert (await run(stage, action)).counts.done == 0
    await stage.broker.bulk.resume(action.id)
    assert (await run(stage, action)).counts.done == len(ids)
    for refused in (stage.broker.bulk.pause, stage.broker.bulk.resume, stage.broker.bulk.abort):
        with pytest.raises(InvalidState, match="done"):
            await refused(action.id)


async def test_an_aborted_action_keeps_what_it_did(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.bulk.reader.MAX_BATCH", 2)
    await stage.publish_each(5)
    action = await stage.broker.bulk.start("cancel", filter="queue:default")
    runner = make_runner(stage)
    await runner.tick()
    action = await stage.broker.bulk.abort(action.id)
    await runner.tick()
    assert (action.state, action.counts.done) == (BulkState.ABORTED, 2)
    assert await stage.broker.bulk.get(action.id) == action
    assert len(await stage.drain()) == 3


async def test_a_rate_bounds_each_batch(stage: Stage) -> None:
    await stage.publish_each(5)
    action = await stage.broker.bulk.start("cancel", filter="queue:default", rate=2)
    runner, began = make_runner(stage), time.monotonic()
    await runner.tick()
    (due_at,) = runner.due.values()
    assert due_at >= began + 1.0
    assert (await stage.broker.bulk.get(action.id)).counts.done == 2


async def test_a_batch_does_not_begin_before_the_rate_allows_it(stage: Stage) -> None:
    """The command line asks its runner more often than the rate allows."""
    await stage.publish_each(5)
    action = await stage.broker.bulk.start("cancel", filter="queue:default", rate=0.01)
    runner = make_runner(stage)
    await runner.tick()
    (name,) = runner.due
    assert await runner.advance(name) > 0
    assert (await stage.broker.bulk.get(action.id)).counts.done == 1


async def test_an_action_whose_key_is_revoked_is_paused(stage: Stage) -> None:
    credentials = Credentials(stage.store)
    key, _ = await credentials.create_key(Key(id="", name="k", roles=("operator",)))
    actor = BulkActor(f"key:{key.id}", key.id)
    ids = await stage.publish_each(2)
    bulk = stage.broker.limit_bulk(actor)
    action = await bulk.start("cancel", filter="queue:default")
    await credentials.revoke_key(key.id)
    action = await run(stage, action)
    assert action.state is BulkState.PAUSED
    assert (action.reason or "").startswith("forbidden")
    with pytest.raises(Forbidden, match="revoked"):
        await bulk.start("cancel", filter="queue:default")
    await stage.broker.bulk.resume(action.id)
    assert (await run(stage, action)).counts.done == len(ids)


async def test_an_action_that_loses_one_of_its_queues_midway_is_paused(stage: Stage) -> None:
    credentials = Credentials(stage.store)
    await stage.queue("mail")
    await credentials.save_role("default", "cleaner", ("manage",))
    key, _ = await credentials.create_key(Key(id="", name="k", roles=("cleaner",)))
    ids = await stage.publish_each(5)
    bulk = stage.broker.limit_bulk(BulkActor(f"key:{key.id}", key.id))
    action = await bulk.start("cancel", filter="queue:default", rate=2)
    other = await bulk.start("cancel", filter="queue:mail")
    runner = make_runner(stage)
    await runner.tick()
    await credentials.save_role("default", "cleaner", ("manage:mail",))
    action = await run(stage, action)
    assert (action.state, action.counts.done) == (BulkState.PAUSED, 2)
    assert action.reason == "forbidden: this caller may not manage queue 'default' any more"
    assert (await run(stage, other)).state is BulkState.DONE
    await credentials.save_role("default", "cleaner", ("manage",))
    await bulk.resume(action.id)
    assert (await run(stage, action)).counts.done == len(ids)


async def test_an_action_whose_role_is_deleted_midway_is_paused(stage: Stage) -> None:
    credentials = Credentials(stage.store)
    await credentials.save_role("default", "cleaner", ("manage",))
    key, _ = await credentials.create_key(Key(id="", name="k", roles=("cleaner",)))
    await stage.publish_each(5)
    bulk = stage.broker.limit_bulk(BulkActor(f"key:{key.id}", key.id))
    action = await bulk.start("cancel", filter="queue:default", rate=2)
    runner = make_runner(stage)
    await runner.tick()
    await credentials.delete_role("default", "cleaner")
    runner.due.clear()
    await runner.tick()
    action = await stage.broker.bulk.get(action.id)
    assert (action.state, action.counts.done) == (BulkState.PAUSED, 2)
    assert (action.reason or "").startswith("forbidden")
    assert len(await stage.drain()) == 3


async def test_messages_read_ahead_are_left_alone_once_a_right_is_taken_away(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.broker.bulk.reader.MAX_BATCH", 100)
    await stage.queue("other")
    credentials = Credentials(stage.store)
    await credentials.save_role("default", "cleaner", ("manage",))
    key, _ = await credentials.create_key(Key(id="", name="k", roles=("cleaner",)))
    for queue in ("default", "other"):
        await stage.broker.publish_many([Draft(queue=queue)] * 110)
    bulk = stage.broker.limit_bulk(BulkActor(f"key:{key.id}", key.id))
    action = await bulk.start("cancel", filter="state:ready")
    runner = make_runner(stage)
    await runner.tick()
    await credentials.save_role("default", "cleaner", ("manage:default",))
    while action.state is BulkState.RUNNING:
        runner.due.clear()
        await runner.tick()
        action = await stage.broker.bulk.get(action.id)
    assert (action.state, action.counts.done) == (BulkState.PAUSED, 100)
    assert (action.reason or "").startswith("forbidden")


async def test_an_action_does_not_outlive_its_token(stage: Stage) -> None:
    await stage.publish_each(2)
    until = await stage.store.now() + 60_000_000
    bulk = stage.broker.limit_bulk(BulkActor("jwt:ann", None, ("manage",), until=until))
    action = await bulk.start("cancel", filter="queue:default")
    await stage.travel(61)
    action = await run(stage, action)
    assert (action.state, action.counts.done) == (BulkState.PAUSED, 0)
    assert action.reason == "forbidden: the token that it was started with has expired"


def limit_bulk(stage: Stage, *grants: str) -> Bulk:
    return stage.broker.limit_bulk(BulkActor("jwt:ann", None, grants))


async def test_an_action_reaches_only_queues_that_its_caller_manages(stage: Stage) -> None:
    await stage.queue("other")
    mine, foreign = await stage.publish(), await stage.publish(queue="other")
    bulk = limit_bulk(stage, "manage:default")
    action = await run(stage, await bulk.start("cancel", filter="state:ready"))
    assert action.counts.done == 1
    assert [await stage.state(id) for id in (mine, foreign)] == [State.CANCELLED, State.READY]
    action = await run(stage, await bulk.start("cancel", ids=[foreign]))
    assert action.counts.done == 0
    with pytest.raises(Forbidden):
        await bulk.start("move", filter="state:ready", queue="other")
    with pytest.raises(Forbidden):
        await limit_bulk(stage, "read").start("cancel", filter="state:ready")
    stranger = stage.broker.limit_bulk(BulkActor("jwt:bob", None, ("manage:other",)))
    with pytest.raises(NotFound):
        await stranger.get(action.id)
    assert await stranger.list_actions() == []


async def test_a_masked_field_selects_nothing_without_the_right_to_reveal(stage: Stage) -> None:
    await stage.queue("cards", mask=("body.card",))
    await stage.queue("open")
    id = await stage.publish(b'{"card": "1"}', queue="cards")
    bulk = limit_bulk(stage, "manage", "publish")
    with pytest.raises(FieldMasked):
        await bulk.start("cancel", filter="queue:cards body.card:1")
    action = await run(stage, await bulk.start("move", filter="queue:cards", queue="open"))
    assert (action.counts.failed, action.counts.failures[0].code) == (1, "FIELD_MASKED")
    assert await stage.state(id) is State.READY


@pytest.mark.parametrize(
    "request_",
    [
        {"verb": "explode", "filter": "state:dead"},
        {"verb": "cancel"},
        {"verb": "cancel", "filter": " "},
        {"verb": "cancel", "filter": "state:dead", "ids": [1]},
        {"verb": "cancel", "ids": []},
        {"verb": "cancel", "ids": list(range(1, 10_002))},
        {"verb": "cancel", "ids": [-1]},
        {"verb": "cancel", "filter": "quue:x"},
        {"verb": "cancel", "filter": "state:dead", "rate": 0},
        {"verb": "cancel", "filter": "state:dead", "rate": float("nan")},
        {"verb": "cancel", "filter": "state:dead", "queue": "x"},
        {"verb": "cancel", "filter": "state:dead", "priority": 1},
        {"verb": "move", "filter": "state:dead"},
        {"verb": "reprioritise", "filter": "state:dead"},
    ],
)
async def test_a_bad_request_starts_nothing(stage: Stage, request_: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        await stage.broker.bulk.start(**request_)
    assert await stage.broker.bulk.list_actions() == []


async def test_a_move_to_no_queue_starts_nothing(stage: Stage) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        await stage.broker.bulk.start("move", filter="state:dead", queue="nowhere")
    with pytest.raises(NotFound):
        await stage.broker.bulk.get(1)


async def test_an_action_without_its_destination_fails(stage: Stage) -> None:
    await stage.queue("other")
    await stage.publish()
    action = await stage.broker.bulk.start("move", filter="state:ready", queue="other")
    await stage.admin.delete_queue("other")
    action = await run(stage, action)
    assert action.state is BulkState.FAILED
    assert "other" in (action.reason or "")


async def test_a_tenant_has_at_most_twenty_active_actions(stage: Stage) -> None:
    for _ in range(20):
        await stage.broker.bulk.start("cancel", filter="state:ready")
    with pytest.raises(TooManyBulks, match="20"):
        await stage.broker.bulk.start("cancel", filter="state:ready")
    assert [each.id for each in await stage.broker.bulk.list_actions(limit=2)] == [20, 19]
    assert len(await stage.broker.bulk.list_actions(active=True)) == 20


async def test_the_start_and_the_end_of_an_action_are_audited(stage: Stage) -> None:
    await stage.publish_each(2)
    token = acting.set(AuditEntry(subject="ann", tenant="default", verb="bulk", target="/v1/bulk"))
    try:
        action = await stage.broker.bulk.start("cancel", filter="queue:default")
    finally:
        acting.reset(token)
    action = await run(stage, action)
    ended, started = await stage.store.acts()
    assert (started.verb, started.subject) == ("bulk", "ann")
    assert (ended.verb, ended.target) == ("bulk.done", f"bulk:{action.id}")
    assert ended.detail == "cancel: 2 done, 0 skipped, 0 failed"
