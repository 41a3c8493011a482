"""Scopes: ensured twice, described, archived and used again."""

import pytest

from penstock.agents.scheduler import Scheduler
from penstock.broker.queue_cache import QueueCache
from penstock.broker.scopes import ScopeDetails
from penstock.errors import NotFound, ScopeArchived
from penstock.model.message import Draft
from penstock.model.queue import QueueState, Schedule
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


async def test_a_scope_is_ensured_and_described(stage: Stage) -> None:
    scopes = stage.broker.scopes
    assert await scopes.ensure("shop") == ScopeDetails("shop")
    described = await scopes.ensure("shop", display_name="Shop", description="Orders")
    assert await scopes.ensure("shop", display_name="Shop") == described
    assert described == ScopeDetails("shop", "active", "Shop", "Orders")
    assert [each.name for each in await scopes.list_scopes()] == ["default", "shop"]
    await stage.admin.pause_scope("shop")
    assert (await scopes.get("shop")).state == "paused"
    with pytest.raises(NotFound):
        await scopes.archive("missing")


async def test_an_archived_scope_accepts_and_serves_nothing_until_it_is_unarchived(
    stage: Stage,
) -> None:
    await stage.admin.schedule(Schedule("tick", "* * * * *", Draft()))
    await stage.publish(b"kept")
    await stage.broker.scopes.archive("default")
    with pytest.raises(ScopeArchived):
        await stage.publish()
    taken = await stage.broker.claim("default", consumer="c")
    assert (taken.messages, taken.queues) == ([], {"default": QueueState.ARCHIVED})
    await stage.travel(60)
    await Scheduler(stage.store, QueueCache(stage.store), "me").tick()
    await stage.broker.scopes.unarchive("default")
    assert [each.body for each in await stage.claim(limit=9)] == [b"kept"]


async def test_a_queue_is_ensured_with_exactly_the_settings_given(stage: Stage) -> None:
    made = await stage.admin.ensure_queue("orders", max_attempts=3, purpose="New orders")
    assert await stage.admin.ensure_queue("orders", max_attempts=3, purpose="New orders") == made
    changed = await stage.admin.ensure_queue("orders", preset_name="relay")
    assert (changed.id, changed.settings.purpose) == (made.id, "")
    assert changed.settings.max_deliveries == 3
