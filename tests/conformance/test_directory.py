"""Tenants, scopes and queues: created, changed, renamed, deleted, and apart from each other."""

import pytest

from penstock import stores
from penstock.broker.local import Broker
from penstock.errors import (
    Forbidden,
    InvalidInput,
    InvalidState,
    LockLost,
    NotFound,
    SlugConflict,
)
from penstock.model.message import Draft, State
from penstock.model.queue import QueueState, Schedule
from penstock.model.settings import PRESETS
from penstock.model.store_types import WorkerInfo
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


async def test_a_new_scope_has_a_place_for_its_dead(stage: Stage) -> None:
    scope = await stage.admin.create_scope("orders")
    assert (scope.tenant, scope.name, scope.paused) == ("default", "orders", False)
    assert [queue.name for queue in await stage.admin.queues(scope="orders")] == ["_dead_letter"]


async def test_a_scope_is_created_once(stage: Stage) -> None:
    await stage.admin.create_scope("orders")
    version = await stage.store.directory_version()
    with pytest.raises(SlugConflict, match="'orders'"):
        await stage.admin.create_scope("orders")
    assert await stage.store.directory_version() == version


async def test_a_queue_is_created_once_in_its_scope(stage: Stage) -> None:
    await stage.queue("work")
    with pytest.raises(SlugConflict, match="'work'"):
        await stage.queue("work", "relay")
    await stage.admin.create_scope("other")
    await stage.admin.create_queue("work", scope="other")
    assert (await stage.admin.queue("work")).settings == PRESETS["default"]


async def test_an_unknown_queue_is_answered_with_a_similar_one_of_its_scope(stage: Stage) -> None:
    await stage.admin.create_scope("other")
    await stage.admin.create_queue("emails", scope="other")
    with pytest.raises(NotFound, match=r"^no queue named 'emials'$"):
        await stage.admin.queue("emials")
    await stage.queue("emails")
    with pytest.raises(NotFound, match=r"^no queue named 'emials'; did you mean 'emails'\?$"):
        await stage.admin.queue("emials")


@pytest.mark.parametrize("name", PRESETS)
async def test_a_queue_has_the_settings_of_its_preset(stage: Stage, name: str) -> None:
    created = await stage.admin.create_queue("work", preset_name=name)
    assert created.settings == PRESETS[name]
    assert await stage.admin.queue("work") == created


async def test_settings_are_laid_over_each_other(stage: Stage) -> None:
    await stage.queue("work", "codeq", max_attempts=7, backoff={"max": 60})
    changed = await stage.admin.set_queue("work", lease=9, backoff={"initial": 3})
    assert (changed.settings.max_attempts, changed.settings.lease) == (7, 9)
    assert (changed.settings.backoff.initial, changed.settings.backoff.max) == (3, 60)
    assert changed.settings.clamp
    assert await stage.store.queue("default", "default", "work") == changed


async def test_a_bad_setting_changes_nothing(stage: Stage) -> None:
    await stage.queue("work")
    before = await stage.admin.queue("work")
    with pytest.raises(InvalidInput):
        await stage.admin.set_queue("work", max_attempts=0)
    assert await stage.admin.queue("work") == before


async def test_a_renamed_queue_keeps_its_messages(stage: Stage) -> None:
    await stage.queue("work")
    id = await stage.publish(queue="work", name="n")
    renamed = await stage.admin.rename_queue("work", "labour")
    assert renamed.name == "labour"
    with pytest.raises(NotFound, match="'work'"):
        await stage.publish(queue="work")
    assert (await stage.admin.get("labour/n")).message.id == id
    assert await stage.drain("labour") == [id]


async def test_a_name_in_use_cannot_be_taken_by_another_queue(stage: Stage) -> None:
    await stage.queue("work")
    with pytest.raises(SlugConflict, match="'default'"):
        await stage.admin.rename_queue("work", "default")
    assert (await stage.admin.queue("work")).state is QueueState.ACTIVE


@pytest.mark.parametrize("how", ["ready", "scheduled", "claimed", "dead"])
async def test_a_queue_with_unfinished_messages_is_not_deleted(stage: Stage, how: str) -> None:
    id = await make_unfinished(stage, how)
    with pytest.raises(InvalidState, match="'work'"):
        await stage.admin.delete_queue("work")
    assert await stage.state(id) == how
    assert (await stage.admin.queue("work")).state is QueueState.ACTIVE


@pytest.mark.parametrize("how", ["ready", "scheduled", "claimed", "dead"])
async def test_force_cancels_what_is_unfinished_first(stage: Stage, how: str) -> None:
    id = await make_unfinished(stage, how)
    await stage.admin.delete_queue("work", force=True)
    with pytest.raises(NotFound):
        await stage.admin.queue("work")
    assert await stage.state(id) is State.CANCELLED


async def make_unfinished(stage: Stage, how: str) -> int:
    await stage.queue("work")
    if how == "dead":
        return await stage.dead("work")
    id = await stage.publish(queue="work", delay=60 if how == "scheduled" else 0)
    if how == "claimed":
        await stage.take("work")
    return id


async def test_the_name_of_a_deleted_queue_is_free(stage: Stage) -> None:
    await stage.queue("work")
    old = await stage.completed("work", name="n")
    await stage.admin.delete_queue("work")
    assert await stage.store.queue("default", "default", "work") is None
    await stage.queue("other")
    await stage.admin.rename_queue("other", "work")
    assert await stage.places("work") == {}
    assert await stage.publish(queue="work", name="n") > old
    assert await stage.state(old) is State.COMPLETED


async def test_the_schedules_of_a_queue_are_deleted_with_it(stage: Stage) -> None:
    await stage.queue("work")
    for name in ("default", "work"):
        await stage.admin.schedule(Schedule("report", "* * * * *", Draft(queue=name)))
    await stage.admin.delete_queue("work")
    assert [each.queue_id for each in await stage.store.schedules()] == [await stage.queue_id()]


@pytest.mark.parametrize("name", ["_dead_letter", "_mine"])
async def test_names_of_the_system_are_the_systems(stage: Stage, name: str) -> None:
    await stage.queue("work")
    with pytest.raises(Forbidden):
        await stage.admin.create_queue(name)
    with pytest.raises(Forbidden):
        await stage.admin.rename_queue("work", name)
    with pytest.raises((Forbidden, NotFound)):
        await stage.admin.delete_queue(name)
    with pytest.raises((Forbidden, NotFound)):
        await stage.admin.rename_queue(name, "mine")


async def test_an_unknown_scope_is_not_found(stage: Stage) -> None:
    with pytest.raises(NotFound, match="'nowhere'"):
        await stage.admin.create_queue("work", scope="nowhere")
    with pytest.raises(NotFound, match="'nowhere'"):
        await stage.admin.pause_scope("nowhere")
    with pytest.raises(NotFound, match="'nowhere'"):
        await stage.broker.publish(Draft(), scope="nowhere")


async def test_queues_of_one_name_in_two_scopes_are_two(stage: Stage) -> None:
    await stage.admin.create_scope("other")
    await stage.admin.create_queue("default", scope="other")
    here = await stage.publish()
    there = (await stage.broker.publish(Draft(), scope="other")).id
    taken = await stage.broker.claim("default", consumer="t", limit=9, scope="other")
    assert [leased.id for leased in taken.messages] == [there]
    assert await stage.drain() == [here]


async def test_a_tenant_finds_nothing_of_another(stage: Stage) -> None:
    other = Broker(stage.store, tenant="acme")
    await other.admin.create_scope("default")
    await other.admin.create_queue("default")
    id = await stage.publish(name="n", correlation_id="c")
    dead = await stage.publish(priority=-1)
    assert [queue.scope.tenant for queue in await other.admin.queues()] == ["acme", "acme"]
    assert await other.admin.find() == await other.admin.find(correlation_id="c") == []
    assert (await other.claim("default", consumer="t")).messages == []
    for reference in (id, "default/n", dead):
        with pytest.raises(NotFound):
            await other.admin.get(reference)
        with pytest.raises(NotFound):
            await other.admin.cancel(reference)
        with pytest.raises(NotFound):
            await other.admin.redrive(reference)
        with pytest.raises(NotFound):
            await other.admin.result(reference)
    assert await stage.places() == {"ready": 2}


async def test_a_tenant_claims_no_dead_letters_of_another(stage: Stage) -> None:
    other = Broker(stage.store, tenant="acme")
    await other.admin.create_scope("default")
    await stage.dead()
    assert (await other.claim("_dead_letter", consumer="t")).messages == []


async def test_a_deleted_queue_fences_its_workers(stage: Stage) -> None:
    await stage.queue("work")
    await stage.publish(queue="work")
    leased = await stage.take("work")
    await stage.admin.delete_queue("work", force=True)
    with pytest.raises(LockLost):
        await stage.broker.complete(leased)


async def test_a_worker_is_found_under_its_whole_id(stage: Stage) -> None:
    """Tenants that share a store keep their workers apart by it."""
    longest = f"{'t' * 128}/{'w' * 64}"
    ids = ("w", "acme/w", longest)
    for id in ids:
        await stage.store.save_worker(WorkerInfo(id, f"host of {id}", 1, ("work",)))
    await stage.store.stop_worker("acme/w")
    rows = {row.id: (row.host, row.stopping) for row in await stage.store.workers()}
    assert rows == {id: (f"host of {id}", id == "acme/w") for id in ids}
    await stage.store.delete_worker("acme/w")
    assert {row.id for row in await stage.store.workers()} == {"w", longest}


async def test_a_store_has_a_secret_that_stays_and_is_its_own(stage: Stage) -> None:
    secret = await stage.store.secret()
    assert len(secret) == 32
    assert await stage.store.secret() == secret
    if stage.engine.lasting:
        async with await stage.engine.open() as again:
            assert await again.secret() == secret
    async with await stores.open("sqlite://") as other:
        assert await other.secret() != secret
