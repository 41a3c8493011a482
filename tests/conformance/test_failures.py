"""Recent failures are found behind many older ones, on every store."""

import pytest

from penstock.broker import search
from penstock.http.handlers import failures
from penstock.http.handlers.failures import read_failures
from penstock.model.message import Fail, Moment
from tests.conformance.stage import HOUR, Stage

pytestmark = pytest.mark.anyio
DAY: Moment = 24 * 3_600_000_000


@pytest.fixture(autouse=True)
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_WORK_S", 60.0)
    monkeypatch.setattr(failures, "MAX_FAILURES", 4)
    monkeypatch.setattr(failures, "FAILURES_PAGE_SIZE", 2)


@pytest.mark.parametrize("most", [100, 1])
async def test_old_dead_letters_do_not_hide_what_failed_today(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Dead letters of many queues are not in the order of their death, so all are looked at."""
    monkeypatch.setattr(failures, "MAX_MERGED_QUEUES", most)
    await stage.queue("mail")
    for number in range(6):
        await stage.dead("mail" if number % 2 else "default")
    await stage.travel(25 * HOUR)
    dead, failed = await stage.dead(), await stage.publish()
    await stage.broker.settle(await stage.take(), Fail("no good"))
    since = await stage.store.now() - DAY
    found = await read_failures(stage.admin, "default", None, since, 60.0)
    assert [each.message.id for each in found.records] == [dead, failed]
    assert (found.complete, found.scanned) == ((True, 3) if most == 100 else (False, 5))


async def test_more_failures_than_are_read_are_not_complete(stage: Stage) -> None:
    for _ in range(5):
        await stage.dead()
    since = await stage.store.now() - DAY
    found = await read_failures(stage.admin, "default", None, since, 60.0)
    assert (len(found.records), found.complete) == (4, False)
