"""Which queues accept and which serve: states of queues and scopes."""

import anyio
import pytest

from penstock.errors import QueueArchived, QueueDraining, QueuePaused, ScopePaused
from penstock.model.message import Draft, Nack, State
from penstock.model.queue import QueueState
from tests.conformance.stage import LEASE_OVER, Stage

pytestmark = pytest.mark.anyio

ACTIVE, PAUSED = QueueState.ACTIVE, QueueState.PAUSED
DRAINING, ARCHIVED = QueueState.DRAINING, QueueState.ARCHIVED

REFUSING = [
    ("scaiqueue", PAUSED, QueuePaused),
    ("default", DRAINING, QueueDraining),
    ("scaiqueue", DRAINING, QueueDraining),
    ("default", ARCHIVED, QueueArchived),
    ("scaiqueue", ARCHIVED, QueueArchived),
]


@pytest.mark.parametrize(("preset", "state", "error"), REFUSING)
async def test_a_closed_queue_refuses_with_its_own_code(
    stage: Stage, preset: str, state: QueueState, error: type[Exception]
) -> None:
    await stage.queue("work", preset)
    await stage.admin.set_state("work", state)
    before = await stage.all()
    with pytest.raises(error, match="'work'"):
        await stage.publish(queue="work")
    assert await stage.all() == before


@pytest.mark.parametrize("preset", ["default", "relay", "codeq", "faststream", "queuectl"])
async def test_a_paused_queue_accepts_and_serves_later(stage: Stage, preset: str) -> None:
    await stage.queue("work", preset)
    await stage.admin.set_state("work", PAUSED)
    id = await stage.publish(queue="work")
    assert await stage.claim("work") == []
    await stage.admin.set_state("work", ACTIVE)
    assert await stage.drain("work") == [id]


@pytest.mark.parametrize("state", [ACTIVE, PAUSED, DRAINING, ARCHIVED])
async def test_a_claim_says_the_state_of_the_queue(stage: Stage, state: QueueState) -> None:
    await stage.queue("work")
    await stage.publish(queue="work")
    await stage.admin.set_state("work", state)
    taken = await stage.broker.claim("work", consumer="t")
    assert taken.queues == {"work": state}
    assert len(taken.messages) == (state in (ACTIVE, DRAINING))


@pytest.mark.parametrize("merge", ["rotate", "rank"])
async def test_of_several_queues_the_serving_ones_serve(stage: Stage, merge: str) -> None:
    await stage.queue("work")
    id = await stage.publish()
    await stage.publish(queue="work")
    await stage.admin.set_state("work", PAUSED)
    taken = await stage.broker.claim("work", "default", consumer="t", limit=9, merge=merge)
    assert taken.queues == {"work": PAUSED, "default": ACTIVE}
    assert [leased.id for leased in taken.messages] == [id]


async def test_a_pause_leaves_held_messages_to_their_consumers(stage: Stage) -> None:
    await stage.queue("work", "scaiqueue")
    done, again, lost = await stage.publish_each(3, queue="work")
    held = await stage.claim("work", limit=3)
    await stage.admin.set_state("work", PAUSED)
    await stage.broker.extend(held[1], 60)
    await stage.broker.complete(held[0])
    await stage.broker.settle(held[1], Nack(delay=5))
    await stage.travel(LEASE_OVER)
    await stage.sweep()
    await stage.promote()
    states = [await stage.state(id) for id in (done, again, lost)]
    assert states == [State.COMPLETED, State.READY, State.READY]
    assert await stage.claim("work") == []


async def test_what_falls_due_in_a_paused_queue_is_promoted_and_waits(stage: Stage) -> None:
    await stage.queue("work", "scaiqueue")
    id = await stage.publish(queue="work", delay=10)
    await stage.admin.set_state("work", PAUSED)
    await stage.travel(11)
    assert await stage.promote() == 1
    assert await stage.claim("work") == []
    await stage.admin.set_state("work", ACTIVE)
    assert await stage.drain("work") == [id]


async def test_a_message_can_be_redriven_into_a_closed_queue(stage: Stage) -> None:
    await stage.queue("work", "scaiqueue")
    dead = await stage.dead("work")
    await stage.admin.set_state("work", PAUSED)
    await stage.admin.redrive(dead)
    assert await stage.state(dead) is State.READY


async def test_a_paused_scope_serves_nothing(stage: Stage) -> None:
    await stage.queue("work")
    await stage.publish(queue="work")
    await stage.admin.pause_scope("default")
    accepted = await stage.publish(queue="work")
    taken = await stage.broker.claim("work", consumer="t", limit=9)
    assert (taken.messages, taken.queues) == ([], {"work": PAUSED})
    await stage.admin.set_state("work", ARCHIVED)
    assert (await stage.broker.claim("work", consumer="t")).queues == {"work": ARCHIVED}
    await stage.admin.set_state("work", ACTIVE)
    await stage.admin.pause_scope("default", paused=False)
    assert accepted in await stage.drain("work")


async def test_a_paused_scope_refuses_where_its_queue_says_so(stage: Stage) -> None:
    await stage.queue("work", "scaiqueue")
    await stage.admin.pause_scope("default")
    before = await stage.all()
    with pytest.raises(ScopePaused, match="'default'"):
        await stage.publish(queue="work")
    assert await stage.all() == before


async def test_a_batch_over_open_and_closed_queues_answers_for_each(stage: Stage) -> None:
    await stage.queue("work")
    await stage.admin.set_state("work", DRAINING)
    drafts = [Draft(), Draft(queue="work"), Draft(queue="nowhere"), Draft(queue="_dead_letter")]
    codes = [answer.code for answer in await stage.broker.publish_many(drafts)]
    assert codes == [None, "QUEUE_DRAINING", "NOT_FOUND", "FORBIDDEN"]
    assert await stage.places() == {"ready": 1}


async def test_another_broker_learns_of_a_switch_within_a_second(stage: Stage) -> None:
    await stage.queue("work")
    other = await stage.another()
    await other.publish(queue="work")
    await stage.admin.set_state("work", PAUSED)
    with anyio.fail_after(20):
        while (await other.broker.claim("work", consumer="t")).queues["work"] is ACTIVE:
            await anyio.lowlevel.checkpoint()


async def test_the_directory_has_a_new_version_after_every_change(stage: Stage) -> None:
    versions = [await stage.store.directory_version()]

    async def note() -> None:
        versions.append(await stage.store.directory_version())

    await stage.admin.create_scope("other")
    await note()
    await stage.queue("work")
    await note()
    await stage.admin.set_queue("work", max_attempts=9)
    await note()
    await stage.admin.set_state("work", PAUSED)
    await note()
    await stage.admin.rename_queue("work", "labour")
    await note()
    await stage.admin.pause_scope("other")
    await note()
    await stage.admin.delete_queue("labour")
    await note()
    assert len(set(versions)) == len(versions)
