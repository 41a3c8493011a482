"""When a schedule ticks: zones, clocks that change, missed ticks, and what is not a schedule."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.errors import InvalidInput
from penstock.model.message import Draft, Moment
from penstock.model.queue import Missed, Schedule
from penstock.rules.cron import (
    MAX_TICKS,
    find_due_ticks,
    find_latest_tick,
    find_next_tick,
    list_ticks,
)
from tests.unit.leases import NOW, SECOND

PARIS, NEW_YORK, LORD_HOWE = "Europe/Paris", "America/New_York", "Australia/Lord_Howe"
MINUTE, DAY = 60 * SECOND, 86_400 * SECOND


def at(text: str) -> Moment:
    """`2026-03-29T03:00+02:00` as a moment."""
    return round(datetime.fromisoformat(text).timestamp() * SECOND)


def ticks(cron: str, timezone: str, after: str, count: int) -> list[str]:
    """The next ticks, as the clocks of the zone show them."""
    found, tick = [], at(after)
    for _ in range(count):
        tick = find_next_tick(cron, timezone, tick)
        local = datetime.fromtimestamp(tick / SECOND, ZoneInfo(timezone))
        found.append(local.isoformat(timespec="minutes"))
    return found


def test_a_tick_is_strictly_after_the_moment() -> None:
    noon = at("2026-05-01T12:00Z")
    assert find_next_tick("0 12 * * *", "UTC", noon - 1) == noon
    assert find_next_tick("0 12 * * *", "UTC", noon) == noon + DAY
    assert find_next_tick("0 12 * * *", "UTC", noon + 1) == noon + DAY


def test_a_zone_has_its_own_nine_o_clock() -> None:
    assert ticks("0 9 * * MON-FRI", "Europe/Rome", "2026-01-02T09:00+01:00", 2) == [
        "2026-01-05T09:00+01:00",
        "2026-01-06T09:00+01:00",
    ]
    assert ticks("0 9 * * *", "Asia/Kathmandu", "2026-01-01T00:00Z", 1) == [
        "2026-01-01T09:00+05:45"
    ]


def test_nine_o_clock_stays_nine_o_clock_when_clocks_change() -> None:
    assert ticks("0 9 * * *", PARIS, "2026-03-28T09:00+01:00", 1) == ["2026-03-29T09:00+02:00"]
    assert ticks("0 9 * * *", PARIS, "2026-10-24T09:00+02:00", 1) == ["2026-10-25T09:00+01:00"]


def test_a_tick_in_an_hour_that_is_left_out_comes_right_after_it() -> None:
    assert ticks("30 2 * * *", PARIS, "2026-03-28T02:30+01:00", 2) == [
        "2026-03-29T03:00+02:00",
        "2026-03-30T02:30+02:00",
    ]


def test_a_tick_in_an_hour_that_comes_twice_comes_once() -> None:
    assert ticks("30 2 * * *", PARIS, "2026-10-24T02:30+02:00", 2) == [
        "2026-10-25T02:30+02:00",
        "2026-10-26T02:30+01:00",
    ]


def test_asked_within_the_second_of_two_hours_the_first_is_over() -> None:
    assert ticks("30 2 * * *", PARIS, "2026-10-25T02:15+01:00", 1) == ["2026-10-26T02:30+01:00"]


def test_every_half_hour_goes_on_through_both_changes() -> None:
    assert ticks("*/30 * * * *", PARIS, "2026-03-29T01:00+01:00", 3) == [
        "2026-03-29T01:30+01:00",
        "2026-03-29T03:00+02:00",
        "2026-03-29T03:30+02:00",
    ]
    assert ticks("*/30 * * * *", PARIS, "2026-10-25T02:00+02:00", 4) == [
        "2026-10-25T02:30+02:00",
        "2026-10-25T02:00+01:00",
        "2026-10-25T02:30+01:00",
        "2026-10-25T03:00+01:00",
    ]


def test_leap_days_and_ends_of_months_are_found() -> None:
    assert ticks("0 0 29 2 *", "UTC", "2026-01-01T00:00Z", 1) == ["2028-02-29T00:00+00:00"]
    assert ticks("0 0 L * *", "UTC", "2026-02-01T00:00Z", 1) == ["2026-02-28T00:00+00:00"]


BAD = {
    "no such day": "* * 31 2 *",
    "no such day in any of its months": "* * 31 2,4,6 *",
    "a step of nothing": "*/0 * * * *",
    "never": "0 0 */31 2 MON#5",
    "too few fields": "* * * *",
    "too many fields": "* * * * * * *",
    "empty": "",
    "blank": "   ",
    "nickname": "@daily",
    "out of range": "60 * * * *",
    "backwards": "5-1 * * * *",
    "words": "every five minutes or so",
    "a huge number": "9" * 5_000 + " * * * *",
    "a lone surrogate": "\ud800 * * * *",
    "NUL": "\x00 * * * *",
    "10 MB of text": "x" * 10_000_000,
    "10 MB of spaces": " " * 10_000_000,
    "10 MB of a list": "1," * 5_000_000 + "1 * * * *",
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_schedule_is_refused_in_short_words(name: str) -> None:
    with pytest.raises(InvalidInput, match="cron") as refused:
        find_next_tick(BAD[name], "UTC", NOW)
    assert len(str(refused.value)) < 200


ZONES = ["Mars/Base", "", "..", "../../etc/passwd", "/etc/passwd", "a\x00b", "Europe", "\ud800"]


@pytest.mark.parametrize("zone", [*ZONES, "zone.tab", "x" * 10_000_000], ids=lambda zone: zone[:9])
def test_an_unknown_zone_is_refused_by_name(zone: str) -> None:
    with pytest.raises(InvalidInput, match="timezone") as refused:
        find_next_tick("* * * * *", zone, NOW)
    assert len(str(refused.value)) < 200


@given(st.text("0123456789*/,-#LW MONJ", max_size=30))
@example("* * * * 1L/2")
@example("* * LW/2 * *")
def test_any_text_is_a_schedule_or_an_invalid_input(cron: str) -> None:
    try:
        tick = find_next_tick(cron, PARIS, NOW)
    except InvalidInput:
        return
    assert tick > NOW


CRONS = st.sampled_from(
    ["* * * * *", "*/7 * * * *", "30 * * * *", "30 2 * * *", "15,45 1-3 * * *", "0 */5 * * SUN"]
)
NAMES = st.sampled_from(["UTC", PARIS, NEW_YORK, LORD_HOWE, "Asia/Kathmandu"])
# Two years, by the second, from new year's day of 2026.
START = at("2026-01-01T00:00Z")
MOMENTS = st.integers(0, 2 * 365 * 86_400).map(lambda seconds: START + seconds * SECOND)


@given(CRONS, NAMES, MOMENTS, st.integers(0, SECOND - 1))
@example("30 2 * * *", PARIS, at("2026-10-25T02:15+01:00"), 0)
@example("15,45 1-3 * * *", LORD_HOWE, at("2026-04-05T01:50+10:30"), 0)
def test_a_tick_is_always_ahead_and_nothing_lies_between(
    cron: str, zone: str, after: Moment, fraction: int
) -> None:
    after += fraction
    tick = find_next_tick(cron, zone, after)
    assert after < tick
    assert tick % MINUTE == 0
    assert find_next_tick(cron, zone, after + (tick - after) // 2) == tick
    assert find_next_tick(cron, zone, tick - 1) == tick


def schedule(missed: Missed, next_at: Moment, cron: str = "* * * * *") -> Schedule:
    return Schedule("nightly", cron, Draft(), missed=missed, next_at=next_at)


NOON = at("2026-05-01T12:00Z")
HALF_PAST_FIVE_LATER = NOON + 5 * MINUTE + 30 * SECOND
EACH = [NOON + minute * MINUTE for minute in range(6)]


@pytest.mark.parametrize(
    ("missed", "expected"), [(Missed.ALL, EACH), (Missed.ONE, EACH[-1:]), (Missed.SKIP, EACH[-1:])]
)
def test_missed_ticks_are_made_up_for_by_policy(missed: Missed, expected: list[Moment]) -> None:
    found = find_due_ticks(schedule(missed, NOON), HALF_PAST_FIVE_LATER)
    assert found == (expected, NOON + 6 * MINUTE)


@pytest.mark.parametrize(
    ("missed", "expected"), [(Missed.ALL, [NOON]), (Missed.ONE, [NOON]), (Missed.SKIP, [])]
)
def test_a_tick_is_skipped_only_when_it_was_missed_by_more_than_a_minute(
    missed: Missed, expected: list[Moment]
) -> None:
    daily = schedule(missed, NOON, "0 12 * * *")
    assert find_due_ticks(daily, NOON + 59 * SECOND) == ([NOON], NOON + DAY)
    assert find_due_ticks(daily, NOON + 61 * SECOND) == (expected, NOON + DAY)


@pytest.mark.parametrize("missed", Missed)
def test_before_its_time_nothing_is_due(missed: Missed) -> None:
    assert find_due_ticks(schedule(missed, NOON), NOON - 1) == ([], NOON)
    assert find_due_ticks(schedule(missed, NOON), NOON) == ([NOON], NOON + MINUTE)


def test_all_ticks_of_a_long_absence_are_fired_a_piece_at_a_time() -> None:
    fired: list[Moment] = []
    absent, waiting = schedule(Missed.ALL, NOON), True
    while waiting:
        found, next_at = find_due_ticks(absent, NOON + 2 * DAY)
        assert len(found) <= MAX_TICKS
        fired, absent = fired + found, schedule(Missed.ALL, next_at)
        waiting = next_at <= NOON + 2 * DAY
    assert fired == [NOON + minute * MINUTE for minute in range(2 * 1440 + 1)]


@pytest.mark.parametrize("late", [0, 1, SECOND, 59_500_000, MINUTE - 1])
@pytest.mark.parametrize("missed", [Missed.ONE, Missed.SKIP])
def test_after_a_long_absence_the_last_tick_is_fired_once(missed: Missed, late: int) -> None:
    last = NOON + 3 * DAY
    assert find_due_ticks(schedule(missed, NOON), last + late) == ([last], last + MINUTE)


@given(CRONS, NAMES, MOMENTS, st.integers(0, SECOND - 1))
def test_no_latest_tick_lies_ahead(cron: str, zone: str, now: Moment, fraction: int) -> None:
    each = Schedule("nightly", cron, Draft(), timezone=zone)
    assert find_latest_tick(each, now + fraction) <= now + fraction


@given(CRONS, MOMENTS, st.integers(0, 3 * 86_400), st.sampled_from(list(Missed)))
def test_no_tick_is_fired_twice_and_none_too_early(
    cron: str, start: Moment, later: int, missed: Missed
) -> None:
    first = find_next_tick(cron, PARIS, start)
    waiting = Schedule("nightly", cron, Draft(), PARIS, missed, next_at=first)
    found, next_at = find_due_ticks(waiting, start + later * SECOND)
    again, _ = find_due_ticks(replace(waiting, next_at=next_at), start + later * SECOND)
    assert all(first <= tick <= start + later * SECOND for tick in found)
    assert found == sorted(set(found))
    assert not set(found) & set(again)


def test_the_next_ticks_are_listed_once_when_clocks_go_back() -> None:
    first = at("2026-10-25T01:30+02:00")
    found = list_ticks("30 * * * *", PARIS, first)
    one_by_one = [first]
    while len(one_by_one) < 5:
        one_by_one.append(find_next_tick("30 * * * *", PARIS, one_by_one[-1]))
    assert found == tuple(one_by_one)
