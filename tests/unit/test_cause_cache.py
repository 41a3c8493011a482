"""The causes of failure that open pages share."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from penstock.http.dashboard import answers
from penstock.http.dashboard.answers import CauseCache
from penstock.wire.dashboard import FailureCauses

pytestmark = pytest.mark.anyio


class Readings:
    """Counts its readings; each answers its number."""

    def __init__(self) -> None:
        self.now = 0.0
        self.count = 0
        self.lasts_s = 0.0

    async def read(self) -> FailureCauses:
        self.count += 1
        number = self.count
        await asyncio.sleep(0)
        self.now += self.lasts_s
        return FailureCauses([str(number)], complete=True)


async def test_causes_are_kept_for_ten_seconds_or_longer_if_reading_them_takes_long() -> None:
    readings = Readings()
    cache = CauseCache(lambda: readings.now)
    for moment, number in ((0.0, "1"), (9.9, "1"), (10.0, "2")):
        readings.now = moment
        assert (await cache.get("key", readings.read)).fingerprints == [number]
    readings.now, readings.lasts_s = 20.0, 1.0
    for moment, number in ((20.0, "3"), (69.9, "3"), (70.0, "4")):
        readings.now = moment
        assert (await cache.get("key", readings.read)).fingerprints == [number]


async def test_callers_with_equal_rights_share_a_reading_and_others_do_not_wait() -> None:
    readings, cache, gate = Readings(), CauseCache(), asyncio.Event()

    def wait(key: str) -> Callable[[], Awaitable[FailureCauses]]:
        async def read() -> FailureCauses:
            await gate.wait()
            return FailureCauses([key], complete=True)

        return read

    slow = [asyncio.create_task(cache.get("slow", wait("slow"))) for _ in range(2)]
    await asyncio.sleep(0)
    assert (await cache.get("other", readings.read)).fingerprints == ["1"]
    gate.set()
    first, second = await asyncio.gather(*slow)
    assert first is second
    assert not cache.reading


async def test_the_causes_of_few_keys_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_ANSWERS", 2)
    readings, cache = Readings(), CauseCache()
    for key in "abc":
        await cache.get(key, readings.read)
    assert [*cache.causes] == ["b", "c"]
