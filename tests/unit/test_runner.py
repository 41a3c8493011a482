"""The runner: pace, failures, nudges, and an orderly end. In virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from penstock.errors import NotFound, StoreBusy, StoreUnreachable
from penstock.runner import (
    UNTIL_WOKEN,
    Agent,
    AgentStatus,
    Runner,
    compute_retry_wait,
    make_identity,
)
from tests.unit.virtual_loop import now, run_virtually


class Probe:
    """An agent that notes when it ran, and does what the test says."""

    def __init__(
        self,
        name: str = "probe",
        every: float = 1.0,
        work: Callable[[int], Awaitable[float | None]] | None = None,
    ) -> None:
        self.name = name
        self.every = every
        self.work = work
        self.ran_at: list[float] = []

    async def tick(self) -> float:
        self.ran_at.append(now())
        wait = await self.work(len(self.ran_at)) if self.work else None
        return self.every if wait is None else wait

    @property
    def gaps(self) -> list[float]:
        return [
            later - earlier for earlier, later in zip(self.ran_at, self.ran_at[1:], strict=False)
        ]


async def run_for(seconds: float, *agents: Agent) -> Runner:
    runner = Runner(agents)
    async with runner:
        await asyncio.sleep(seconds)
    return runner


def test_every_agent_keeps_its_own_pace() -> None:
    often, seldom = Probe("often", 1.0), Probe("seldom", 60.0)
    run_virtually(run_for(300.0, often, seldom))
    assert all(0.9 <= gap <= 1.0 for gap in often.gaps)
    assert all(54.0 <= gap <= 60.0 for gap in seldom.gaps)
    assert len(often.gaps) >= 300
    assert len(seldom.gaps) in (5, 6)


def test_first_ticks_are_spread_over_a_second_with_the_most_frequent_first() -> None:
    agents = [Probe("monthly", 9e5), Probe("often", 1.0), Probe("hasty", 0.2), Probe("daily", 9e4)]
    run_virtually(run_for(5.0, *agents))
    assert [agent.ran_at[0] for agent in agents] == pytest.approx([0.75, 0.25, 0.0, 0.5])


def test_an_agent_stopped_before_its_first_tick_does_not_tick() -> None:
    first, late = Probe("first", 1.0), Probe("late", 60.0)
    run_virtually(run_for(0.1, first, late))
    assert (len(first.ran_at), late.ran_at) == (1, [])


def test_nodes_started_together_do_not_stay_together() -> None:
    one, other = Probe(), Probe()
    run_virtually(run_for(60.0, one, other))
    assert one.ran_at != other.ran_at


def test_a_wait_until_something_is_due_is_kept_to_exactly() -> None:
    async def due(run: int) -> float:
        return 0.25

    probe = Probe(every=1.0, work=due)
    run_virtually(run_for(2.1, probe))
    assert probe.ran_at == pytest.approx([0.25 * n for n in range(9)])


def test_an_agent_with_more_to_do_runs_again_at_once_beside_the_others() -> None:
    async def busy(run: int) -> float:
        return 0 if run < 100 else 1.0

    hungry, patient = Probe("hungry", work=busy), Probe("patient")
    run_virtually(run_for(0.75, hungry, patient))
    assert hungry.ran_at == [0.0] * 100
    assert patient.ran_at == [0.5]


def test_a_failing_agent_is_logged_by_name_and_goes_on_with_growing_waits() -> None:
    async def fail(run: int) -> float:
        raise KeyError("no such key")

    sick, well = Probe("sick", every=60.0, work=fail), Probe("well")
    with capture_logs() as logs:
        run_virtually(run_for(120.0, sick, well))
    expected = [1, 2, 4, 8, 16, 30]
    assert len(well.gaps) >= 120
    assert all(0.9 * wait <= gap <= wait for wait, gap in zip(expected, sick.gaps[:6], strict=True))
    assert {(entry["event"], entry["agent"], entry["log_level"]) for entry in logs} == {
        ("agent_failed", "sick", "error")
    }


def test_a_bug_is_logged_with_where_it_happened() -> None:
    error = KeyError("no such key")

    async def fail(run: int) -> float:
        raise error

    with capture_logs() as logs:
        run_virtually(run_for(0.5, Probe("sick", work=fail)))
    (entry,) = logs
    assert (entry["error"], entry["exc_info"]) == ("KeyError: 'no such key'", error)


def test_a_store_that_is_away_is_one_line_for_all_agents() -> None:
    async def fail(run: int) -> float | None:
        if run < 3:
            raise StoreUnreachable("server is away")
        return None

    with capture_logs() as logs:
        run_virtually(run_for(60.0, Probe("one", work=fail), Probe("other", work=fail)))
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [
        ("store_unreachable", "error"),
        ("store_recovered", "warning"),
    ]


def test_the_wait_never_grows_past_30_seconds() -> None:
    away = StoreUnreachable("server is away")
    waits = [compute_retry_wait(n, 60.0, away) for n in (1, 2, 5, 6, 7, 10_000)]
    assert waits == [1, 2, 16, 30, 30, 30]


def test_an_agent_that_runs_every_second_is_back_in_seconds() -> None:
    away, busy = StoreUnreachable("server is away"), StoreBusy("no write lock")
    assert [compute_retry_wait(n, 1.0, away) for n in (1, 2, 3, 4, 10_000)] == [1, 2, 4, 4, 4]
    assert [compute_retry_wait(n, 1.0, busy) for n in (1, 2, 10_000)] == [1, 1, 1]


def test_a_success_resets_the_growing_wait() -> None:
    async def flaky(run: int) -> float | None:
        if run in (1, 2, 4):
            raise StoreUnreachable("server is away")
        return 0.5

    probe = Probe(work=flaky)
    with capture_logs():
        run_virtually(run_for(5.0, probe))
    first, second, fine, again = probe.gaps[:4]
    assert 0.9 <= first <= 1.0
    assert 1.8 <= second <= 2.0
    assert fine == pytest.approx(0.5)
    assert 0.9 <= again <= 1.0


def test_a_nudge_ends_one_agents_wait_now() -> None:
    async def scenario() -> tuple[list[float], list[float]]:
        nudged, other = Probe("nudged", 60.0), Probe("other", 60.0)
        async with Runner([nudged, other]) as runner:
            await asyncio.sleep(7)
            runner.nudge("nudged")
            await asyncio.sleep(1)
        return nudged.ran_at, other.ran_at

    assert run_virtually(scenario()) == ([0.0, 7.0], [0.5])


def test_a_nudge_during_a_run_is_not_lost() -> None:
    async def slow(run: int) -> None:
        await asyncio.sleep(2)

    async def scenario() -> list[float]:
        probe = Probe(every=60.0, work=slow)
        async with Runner([probe]) as runner:
            await asyncio.sleep(1)
            runner.nudge("probe")
            await asyncio.sleep(2)
        return probe.ran_at

    assert run_virtually(scenario()) == [0.0, 2.0]


def test_nudging_an_unknown_agent_says_so() -> None:
    async def scenario() -> None:
        Runner([Probe()]).nudge("prbe")

    with pytest.raises(NotFound, match="no agent named 'prbe'"):
        run_virtually(scenario())


def test_stop_lets_the_run_under_way_end_and_begins_no_other() -> None:
    async def scenario() -> tuple[list[str], float]:
        done: list[str] = []

        async def slow(run: int) -> None:
            await asyncio.sleep(5)
            done.append("slow")

        runner = Runner([Probe("slow", work=slow), Probe("idle", 300.0)])
        running = asyncio.create_task(runner.run())
        await asyncio.sleep(1)
        runner.stop()
        await running
        return done, now()

    assert run_virtually(scenario()) == (["slow"], 5.0)


def test_a_body_that_raises_still_stops_the_runner() -> None:
    async def scenario() -> bool:
        runner = Runner([Probe()])
        with pytest.raises(ZeroDivisionError):
            async with runner:
                raise ZeroDivisionError
        return runner.running is not None and runner.running.done()

    assert run_virtually(scenario())


def test_cancelling_the_runner_cancels_its_agents() -> None:
    async def scenario() -> list[str]:
        ended: list[str] = []

        async def stuck(run: int) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                ended.append("cancelled")

        running = asyncio.create_task(Runner([Probe(work=stuck)]).run())
        await asyncio.sleep(1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return ended

    assert run_virtually(scenario()) == ["cancelled"]


def test_an_agent_that_nobody_needs_sleeps_until_it_is_woken() -> None:
    async def unneeded(run: int) -> float:
        return UNTIL_WOKEN if run < 3 else 5.0

    async def scenario() -> list[AgentStatus]:
        seen = []
        async with Runner([Probe("probe", 1.0, unneeded), Probe("other", 600.0)]) as runner:
            for _ in range(3):
                await asyncio.sleep(3_600)
                seen.append(runner.statuses()[0])
                runner.wake_dormant()
        return seen

    first, second, third = run_virtually(scenario())
    assert [first.runs, second.runs] == [1, 2]
    assert first.runs_in is None
    assert third.runs > 100


def test_waking_the_dormant_leaves_others_alone() -> None:
    async def scenario() -> int:
        async with Runner([Probe("busy", 600.0)]) as runner:
            await asyncio.sleep(1)
            runner.wake_dormant()
            await asyncio.sleep(1)
            return runner.statuses()[0].runs

    assert run_virtually(scenario()) == 1


def test_the_status_tells_runs_errors_and_the_next_run() -> None:
    async def half(run: int) -> float:
        if run == 2:
            raise StoreBusy("no write lock")
        return 10.0

    async def scenario() -> list[list[AgentStatus]]:
        seen = []
        async with Runner([Probe("probe", 20.0, half)]) as runner:
            seen.append(runner.statuses())
            await asyncio.sleep(4)
            seen.append(runner.statuses())
            await asyncio.sleep(6.5)
            seen.append(runner.statuses())
        seen.append(runner.statuses())
        return seen

    with capture_logs():
        (new,), (fine,), (failed,), (stopped,) = run_virtually(scenario())
    assert new == AgentStatus("probe", 20.0, 0, None, None, None)
    assert fine == AgentStatus("probe", 20.0, 1, 4.0, 6.0, None)
    assert (failed.runs, failed.error) == (2, "StoreBusy: no write lock")
    assert stopped.runs_in is None


def test_an_identity_is_never_used_twice() -> None:
    assert len({make_identity() for _ in range(100)}) == 100


def test_who_asked_hears_of_an_agent_that_fails_and_of_its_recovery() -> None:
    async def twice(run: int) -> float:
        if run in (2, 3):
            raise StoreBusy("no write lock")
        return 1.0

    heard: list[tuple[str, str | None]] = []

    async def scenario() -> None:
        async with Runner([Probe("probe", 1.0, twice)], lambda *told: heard.append(told)):
            await asyncio.sleep(60)

    with capture_logs():
        run_virtually(scenario())
    assert heard == [("probe", "StoreBusy: no write lock"), ("probe", None)]
