"""The terminal dashboard: what it shows of a store."""

import pytest
from textual.widgets import DataTable, Static

from penstock import stores
from penstock.broker.local import Broker
from penstock.cli.top_screen import Sampler, TopScreen
from penstock.model.message import Draft, SettleReject
from penstock.model.store_types import Completion, WorkerInfo
from penstock.testing import ManualClock

pytestmark = pytest.mark.anyio


async def test_top_knows_the_rates_of_the_seconds_before_it_started() -> None:
    clock = ManualClock()
    async with await stores.open("sqlite://", clock=clock) as store:
        broker = Broker(store)
        await broker.admin.create_queue("mail")
        for _ in range(20):
            await broker.publish(Draft(queue="mail"))
        taken = (await broker.claim("mail", consumer="c", limit=20)).messages
        await broker.complete_many([Completion(each.id, each.fence) for each in taken[:15]])
        for message in taken[15:]:
            await broker.settle(message, SettleReject("no"))
        clock.advance(2)
        (mail,) = [line for line in (await Sampler(store, "default").read())[0]
                   if line.queue.name == "mail"]  # fmt: skip
        assert (mail.done, mail.failed) == (1.5, 0.5)


async def test_top_shows_counts_and_problems_and_pauses() -> None:
    async with await stores.open("sqlite://") as store:
        broker = Broker(store)
        await broker.admin.create_queue("mail")
        for _ in range(3):
            await broker.publish(Draft(queue="mail"))
        taken = await broker.claim("mail", consumer="c", limit=1)
        await broker.settle(taken.messages[0], SettleReject("no"))
        await store.save_worker(WorkerInfo("w", "elsewhere", 1, ("mail",), slots=8))
        screen = TopScreen(broker.store, "default", "sqlite://")
        async with screen.run_test(size=(120, 30)) as pilot:
            table = screen.query_one(DataTable)
            row = [str(cell) for cell in table.get_row_at(1)]
            assert row[:6] == ["mail", "active", "2", "0", "0", "1"]
            assert row[-1] == "0/8"
            assert "dead 1" in str(screen.query_one("#totals", Static).content)
            assert "1 dead letter" in str(screen.query_one("#attention", Static).content)
            await pilot.press("p")
            await broker.publish(Draft(queue="mail"))
            await screen.update_figures()
            assert str(table.get_row_at(1)[2]) == "2"
            await pilot.press("p")
            await screen.update_figures()
            assert str(table.get_row_at(1)[2]) == "3"
