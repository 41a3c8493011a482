"""Filters are completed from queues and recent history, on every store."""

import pytest

from penstock.broker import filters
from penstock.broker.filters import FilterCompleter, RecentHistory
from penstock.broker.local import Broker
from penstock.rules.filter_completion import MAX_ITEMS
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


async def test_filters_are_completed_with_what_was_seen_lately(stage: Stage) -> None:
    await stage.queue("mail", mask=("error",))
    await stage.completed(type="order.new", correlation_id="c-1")
    await stage.dead("mail", type="mail.send")

    async def offer(text: str, completer: FilterCompleter = stage.broker.filters) -> list[str]:
        return (await completer.complete(text)).items

    assert await offer("queue:ma") == ["mail"]
    assert await offer("type:") == ["mail.send", "order.new"]
    assert await offer("correlation:") == ["c-1"]
    assert await offer("consumer:t") == ["tester"]
    assert await offer("error.kind:no") == ['"no good"']
    blind = stage.broker.limit_admin(lambda scope, queue: True, lambda scope, queue: False)
    assert await offer("error.kind:", FilterCompleter(blind, RecentHistory(stage.store))) == []
    outside = stage.broker.limit_admin(
        lambda scope, queue: queue == "default", lambda scope, queue: True
    )
    limited = FilterCompleter(outside, RecentHistory(stage.store))
    assert await offer("type:", limited) == ["order.new"]
    assert await offer("queue:", limited) == ["default"]


async def test_queues_of_other_tenants_do_not_hide_scopes(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filters, "MAX_QUEUES_CHECKED", 6)
    await stage.store.create_scope("aaa", "default")
    other = Broker(stage.store, tenant="aaa")
    for number in range(6):
        await other.admin.create_queue(f"q{number}")
    await stage.admin.create_scope("orders")
    await stage.admin.create_queue("mail", scope="orders")
    assert "orders" in (await stage.broker.filters.complete("scope:")).items


async def test_of_many_queues_only_those_offered_are_checked(stage: Stage) -> None:
    for number in range(MAX_ITEMS + 10):
        await stage.queue(f"q{number:03d}")
    checked: list[str] = []

    def allows(scope: str, queue: str) -> bool:
        checked.append(queue)
        return queue != "q000"

    limited = stage.broker.limit_admin(allows, lambda scope, queue: True)
    completer = FilterCompleter(limited, RecentHistory(stage.store))
    offered = (await completer.complete("queue:q")).items
    assert offered == [f"q{number:03d}" for number in range(1, MAX_ITEMS + 1)]
    assert len(checked) == MAX_ITEMS + 1
    assert (await completer.complete("scope:")).items == ["default"]
