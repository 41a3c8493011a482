"""The rules inside agents: the reclaim guard, cron entries, growth, groups of retention."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.agents.ager import is_aging
from penstock.agents.dead_letter_monitor import compute_growth
from penstock.agents.pruner import RetentionGroup, group_by_retention
from penstock.agents.reclaimer import ReclaimWatch, advance_watch, may_reclaim
from penstock.agents.scheduler import accepts_ticks, make_tick_entry, stamp_draft, wait_until
from penstock.model.message import Dedup, Draft
from penstock.model.queue import Queue, QueueState, Schedule, Scope
from penstock.model.settings import QueueSettings, get_preset
from penstock.model.store_types import Dedupe

SECOND = 1_000_000
SCOPE = Scope(1, "default", "default")


def look(*moments: float, every: float = 1.0) -> ReclaimWatch:
    """The watch after looks at these seconds."""
    watch = None
    for moment in moments:
        watch = advance_watch(watch, int(moment * SECOND), every)
    assert watch is not None
    return watch


def test_a_process_that_just_started_reclaims_nothing_for_a_third_of_the_lease() -> None:
    assert not may_reclaim(30.0, look(100))
    assert not may_reclaim(30.0, look(*range(100, 110)))
    assert may_reclaim(30.0, look(*range(100, 111)))


def test_a_look_every_second_keeps_the_watch() -> None:
    assert look(*range(100)) == ReclaimWatch(0, 99 * SECOND)


def test_a_gap_of_five_seconds_is_no_gap() -> None:
    assert look(0, 5, 10) == ReclaimWatch(0, 10 * SECOND)


def test_after_a_longer_gap_the_watch_begins_anew() -> None:
    assert look(0, 5.000001) == ReclaimWatch(5_000_001, 5_000_001)


def test_a_slow_agent_may_have_gaps_of_two_ticks() -> None:
    assert look(0, 20, every=10.0) == ReclaimWatch(0, 20 * SECOND)
    assert look(0, 20.1, every=10.0) == ReclaimWatch(20_100_000, 20_100_000)


def test_a_clock_that_was_set_back_begins_the_watch_anew() -> None:
    assert look(100, 99) == ReclaimWatch(99 * SECOND, 99 * SECOND)


def test_a_short_lease_is_free_sooner_than_a_long_one() -> None:
    watch = look(*range(12))
    assert (may_reclaim(30.0, watch), may_reclaim(60.0, watch)) == (True, False)


@given(
    st.lists(st.floats(0.0, 60.0), min_size=1, max_size=50),
    st.floats(0.1, 600.0),
)
def test_nothing_is_reclaimed_within_a_third_of_a_lease_after_any_gap(
    steps: list[float], lease: float
) -> None:
    now, since, watch = 0, 0, None
    for step in steps:
        now += int(step * SECOND)
        since = now if watch is None or step > 5 else since
        watch = advance_watch(watch, now, 1.0)
        assert may_reclaim(lease, watch) == (now - since >= lease / 3 * SECOND)


def test_the_wait_is_until_the_first_moment_and_never_spins() -> None:
    now = 1_000 * SECOND
    assert wait_until([], now, 1.0) == 1.0
    assert wait_until([now + 10 * SECOND], now, 1.0) == 1.0
    assert wait_until([now + SECOND, now + SECOND // 4], now, 1.0) == 0.25
    assert wait_until([now + 1], now, 1.0) == 0.001
    assert wait_until([now], now, 1.0) == 0
    assert wait_until([now - SECOND, now + SECOND], now, 1.0) == 0


def test_a_ticks_draft_says_which_tick_it_is() -> None:
    draft = Draft(name="report", headers={"a": "b"}, dedup=Dedup("daily"))
    tick = 1_774_746_000 * SECOND
    assert stamp_draft(draft, tick) == Draft(
        name="report@2026-03-29T01:00:00+00:00",
        headers={"a": "b", "penstock-tick": "2026-03-29T01:00:00+00:00"},
    )


def test_a_ticks_entry_has_a_key_of_its_own_and_is_never_refused() -> None:
    queue = Queue(3, SCOPE, "reports", settings=QueueSettings(max_depth=1))
    schedule = Schedule("daily", "0 0 * * *", Draft(body=b"x"), id=7)
    one, other = (
        make_tick_entry(schedule, queue, tick * SECOND, schedule.draft) for tick in (60, 120)
    )
    assert isinstance(one.dedup, Dedupe)
    assert isinstance(other.dedup, Dedupe)
    assert (one.dedup.key, one.dedup.window) == ("cron:7:60000000", 604_800.0)
    assert other.dedup.key == "cron:7:120000000"
    assert (one.queue_id, one.body, one.flags, one.overflow) == (3, b"x", 0, "dead")


def test_a_paused_queue_takes_ticks_and_a_closing_one_does_not() -> None:
    assert {state for state in QueueState if accepts_ticks(Queue(1, SCOPE, "q", state))} == {
        QueueState.ACTIVE,
        QueueState.PAUSED,
    }


def test_only_priorities_age() -> None:
    aging = get_preset("scaiqueue")
    assert is_aging(Queue(1, SCOPE, "q", settings=aging))
    assert not is_aging(Queue(1, SCOPE, "q", QueueState.DELETED, aging))
    assert not is_aging(
        Queue(1, SCOPE, "q", settings=QueueSettings(aging=True, ordering="deadline"))
    )
    assert not is_aging(Queue(1, SCOPE, "q"))


def test_growth_is_by_scope_and_leaves_out_what_shrank() -> None:
    before = {"1": 5, "2": 5, "3": 5}
    assert compute_growth(before, {"1": 7, "2": 5, "3": 1, "4": 2}) == {"1": 2, "4": 2}


def test_queues_that_keep_their_messages_equally_long_go_together() -> None:
    long, short = QueueSettings(), QueueSettings(retention=60.0)
    queues = [Queue(n, SCOPE, f"q{n}", settings=s) for n, s in ((3, long), (1, long), (2, short))]
    assert group_by_retention(queues) == [
        RetentionGroup(60.0, (2,)),
        RetentionGroup(604_800.0, (1, 3)),
    ]
