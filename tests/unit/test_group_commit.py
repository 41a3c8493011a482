"""Many callers share their calls, and none pays for another."""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, TypeVarTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.group_commit import Batcher
from penstock.errors import InvalidInput, StoreBusy

pytestmark = pytest.mark.anyio
Ts = TypeVarTuple("Ts")


class Gate:
    """A store call of numbers to their negatives, which waits until it is let through."""

    def __init__(self, *, open: bool = False) -> None:
        self.calls: list[list[int]] = []
        self.callers: list[asyncio.Task[Any] | None] = []
        self.open = asyncio.Event()
        if open:
            self.open.set()
        self.errors: dict[int, Exception] = {}

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        self.callers.append(asyncio.current_task())
        await self.open.wait()
        for item in items:
            if item in self.errors:
                raise self.errors[item]
        return [-item for item in items]


async def until(true: Callable[[], bool]) -> None:
    """Turns the loop, without a clock, until it is so."""
    for _ in range(1_000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never became so")


async def start(lane: Batcher[int, int], *groups: Sequence[int]) -> list[asyncio.Task[list[int]]]:
    """One caller for each group, in this order, all of them arrived."""
    tasks = [asyncio.create_task(lane.add(group)) for group in groups]
    await asyncio.sleep(0)
    return tasks


def answers(groups: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[-item for item in group] for group in groups]


async def negate(items: Sequence[int]) -> list[int]:
    return [-item for item in items]


def test_a_lone_caller_needs_no_loop_at_all() -> None:
    with pytest.raises(StopIteration) as returned:
        Batcher(negate, 10).add([1, 2]).send(None)
    assert returned.value.value == [-1, -2]


async def test_a_lone_caller_makes_its_call_itself() -> None:
    gate = Gate(open=True)
    assert await Batcher(gate, 10).add([1]) == [-1]
    assert gate.callers == [asyncio.current_task()]


async def test_what_arrives_meanwhile_goes_in_one_call() -> None:
    gate = Gate()
    groups = [[1], [2], [3, 4], [5]]
    tasks = await start(Batcher(gate, 10), *groups)
    assert gate.calls == [[1]]
    gate.open.set()
    assert await asyncio.gather(*tasks) == answers(groups)
    assert gate.calls == [[1], [2, 3, 4, 5]]


async def test_what_arrives_during_the_second_call_goes_in_the_third() -> None:
    gate = Gate(open=True)
    lane = Batcher(gate, 10)
    first = await start(lane, [1], [2])
    await until(lambda: len(gate.calls) == 2)
    second = await start(lane, [3], [4])
    assert await asyncio.gather(*first, *second) == answers([[1], [2], [3], [4]])
    assert [item for call in gate.calls for item in call] == [1, 2, 3, 4]


async def test_only_one_call_is_in_flight() -> None:
    flying, most = 0, 0

    async def call(items: Sequence[int]) -> list[int]:
        nonlocal flying, most
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0)
        flying -= 1
        return list(items)

    lane = Batcher(call, 3)
    await asyncio.gather(*(lane.add([number]) for number in range(100)))
    assert most == 1


async def test_a_call_takes_whole_groups_up_to_its_most() -> None:
    gate = Gate()
    groups = [[1], [2, 3], [4, 5], [6], [7, 8, 9, 10, 11, 12], [13]]
    tasks = await start(Batcher(gate, 4), *groups)
    gate.open.set()
    assert await asyncio.gather(*tasks) == answers(groups)
    assert gate.calls == [[1], [2, 3, 4, 5], [6], [7, 8, 9, 10, 11, 12], [13]]


def test_no_timer_is_set() -> None:
    timers: list[float] = []

    class Watched(asyncio.SelectorEventLoop):
        def call_at(
            self,
            when: float,
            callback: Callable[[*Ts], object],
            *args: *Ts,
            context: Context | None = None,
        ) -> asyncio.TimerHandle:
            timers.append(when)
            return super().call_at(when, callback, *args, context=context)

    async def crowd() -> list[list[int]]:
        lane = Batcher(negate, 4)
        return await asyncio.gather(*(lane.add([number]) for number in range(50)))

    with asyncio.Runner(loop_factory=Watched) as runner:
        assert runner.run(crowd()) == answers([[number] for number in range(50)])
    assert timers == []


async def test_a_bad_item_fails_alone() -> None:
    gate = Gate()
    gate.errors[3] = InvalidInput("3 is bad")
    tasks = await start(Batcher(gate, 10), [1], [2], [3, 30], [4])
    gate.open.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results == [[-1], [-2], gate.errors[3], [-4]]
    assert gate.calls == [[1], [2, 3, 30, 4], [2], [3, 30], [4]]


async def test_a_sick_store_fails_everybody_once_and_is_not_asked_again() -> None:
    gate = Gate()
    gate.errors[3] = StoreBusy("no lock in time")
    lane = Batcher(gate, 10)
    tasks = await start(lane, [1], [2], [3], [4])
    gate.open.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert results == [[-1], *[gate.errors[3]] * 3]
    assert gate.calls == [[1], [2, 3, 4]]
    assert await lane.add([5]) == [-5]


async def test_the_error_of_a_lone_caller_is_its_own() -> None:
    gate = Gate()
    gate.errors[1] = InvalidInput("1 is bad")
    tasks = await start(Batcher(gate, 10), [1], [2])
    gate.open.set()
    assert await asyncio.gather(*tasks, return_exceptions=True) == [gate.errors[1], [-2]]


@pytest.mark.parametrize("cancelled", [[0], [1], [2], [1, 2], [0, 1], [0, 3], [1, 2, 3]])
async def test_a_cancelled_caller_cancels_nobody_else(cancelled: list[int]) -> None:
    gate = Gate()
    lane = Batcher(gate, 10)
    groups = [[1], [2], [3], [4]]
    tasks = await start(lane, *groups)
    for number in cancelled:
        tasks[number].cancel()
    gate.open.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for number, result in enumerate(results):
        if number in cancelled:
            assert isinstance(result, asyncio.CancelledError)
        else:
            assert result == [-groups[number][0]]
    assert await lane.add([5]) == [-5]


async def test_a_caller_cancelled_while_its_shared_call_is_out_leaves_the_call_alone() -> None:
    gate = Gate()
    lane = Batcher(gate, 10)
    leader, gone, stays = await start(lane, [1], [2], [3])
    leader.cancel()
    await until(lambda: len(gate.calls) == 2)
    gone.cancel()
    gate.open.set()
    assert await stays == [-3]
    assert gate.calls == [[1], [2, 3]]
    assert await lane.add([5]) == [-5]


async def test_a_lane_stays_open_when_all_its_callers_are_cancelled() -> None:
    gate = Gate()
    lane = Batcher(gate, 10)
    tasks = await start(lane, [1], [2], [3])
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    gate.open.set()
    assert await lane.add([5]) == [-5]


def test_a_loop_that_closes_is_not_held_up_by_those_who_wait() -> None:
    calls: list[list[int]] = []

    async def hang(items: Sequence[int]) -> list[int]:
        calls.append(list(items))
        if len(calls) < 3:
            await asyncio.Event().wait()
        return list(items)

    async def close_in_the_middle() -> None:
        leader, *_ = await start(Batcher(hang, 1), [1], [2], [3], [4])
        leader.cancel()
        await until(lambda: len(calls) == 2)

    asyncio.run(close_in_the_middle())
    assert calls == [[1], [2]]


async def test_what_a_caller_that_left_had_not_sent_is_not_sent() -> None:
    gate = Gate()
    _, gone, stays = await start(Batcher(gate, 10), [1], [2], [3])
    gone.cancel()
    gate.open.set()
    assert await stays == [-3]
    assert gate.calls == [[1], [3]]


SIZES = st.lists(st.integers(1, 5), max_size=40)
PLACES = st.sets(st.integers(0, 39), max_size=20)


@given(SIZES, st.integers(1, 12), PLACES, PLACES)
def test_any_crowd_gets_its_own_answers_in_order(
    sizes: list[int], most: int, bad: set[int], cancelled: set[int]
) -> None:
    groups = [[1000 * place + n for n in range(size)] for place, size in enumerate(sizes)]
    good = [place for place in range(len(groups)) if place not in bad | cancelled]

    async def crowd() -> list[list[int]]:
        gate = Gate()
        gate.errors = {1000 * place: InvalidInput(str(place)) for place in bad}
        tasks = await start(Batcher(gate, most), *groups)
        for place in cancelled & set(range(len(groups))):
            tasks[place].cancel()
        gate.open.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [results[place] for place in good] == answers([groups[place] for place in good])
        return gate.calls

    calls = asyncio.run(crowd())
    assert calls == sorted(calls, key=lambda call: call[0])
    assert all(call in groups for call in calls if len(call) > most)
