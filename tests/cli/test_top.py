"""The terminal dashboard: what it shows of a store."""

import pytest
from textual.widgets import DataTable, Static

from penstock import stores
from penstock.broker.local import Broker
from penstock.cli.top_screen import TopScreen
from penstock.model.message import Draft, SettleReject
from penstock.model.store_types import WorkerInfo

pytestmark = pytest.mark.anyio


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
