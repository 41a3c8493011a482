"""What a settlement becomes: every row of the contract's table, and how runs are counted."""

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.model.message import (
    PLAIN,
    Fail,
    Flag,
    Meta,
    Nack,
    Park,
    Reclaim,
    Release,
    SettleCancelled,
    Settlement,
    SettleReject,
    State,
)
from penstock.model.settings import Backoff, QueueSettings, RetrySettings, get_preset
from penstock.model.store_types import Move
from penstock.rules.backoff import compute_limits
from penstock.rules.lifecycle import LEASE_EXPIRED, settle
from tests.unit.leases import LEASE, NOW, SECOND, half, lease

# Delays of 2, 4, 8 seconds.
QUEUE = QueueSettings(backoff=Backoff(jitter="none"))
READY, SCHEDULED, DEAD = State.READY, State.SCHEDULED, State.DEAD
COUNT, BACKOFF = RetrySettings(on_expiry="count"), RetrySettings(on_expiry="backoff")
REQUESTED = {"flags": Flag.CANCEL_REQUESTED | Flag.KEYED}
FROM_DEAD = {"flags": Flag.FROM_DEAD, "dead_reason": "overflow"}
NONE_LEFT, FOR_GOOD = "retries_exhausted", "max_deliveries"

# What is done, to what lease, under what settings, and what becomes of it. The lease is on its
# second delivery with one attempt behind it; what a row does not name stays as it is.
Row = tuple[Settlement, dict[str, Any], dict[str, Any], dict[str, Any]]
ROWS: dict[str, Row] = {
    "nack": (Nack("x"), {}, {}, dict(state=SCHEDULED, attempts=2, delay=4.0)),
    "nack for a reason": (
        Nack("x", reason="TIMEOUT"),
        {},
        {},
        dict(state=SCHEDULED, attempts=2, delay=4.0, reason="TIMEOUT"),
    ),
    "nack with a delay": (Nack("x", 7), {}, {}, dict(state=SCHEDULED, attempts=2, delay=7)),
    "nack with delay 0": (Nack("x", 0), {}, {}, dict(state=READY, attempts=2)),
    "nack, attempts used up": (
        Nack("x"),
        {"attempts": 4},
        {},
        dict(state=DEAD, attempts=5, reason=NONE_LEFT),
    ),
    "nack, deliveries used up": (
        Nack("x", 0),
        {"deliveries": 8},
        {},
        dict(state=DEAD, attempts=2, reason=FOR_GOOD),
    ),
    "nack, both used up": (
        Nack("x"),
        {"attempts": 4, "deliveries": 8},
        {},
        dict(state=DEAD, attempts=5, reason=NONE_LEFT),
    ),
    "fail": (Fail("x"), {}, {}, dict(state=State.FAILED, attempts=2)),
    "reject": (SettleReject("x"), {}, {}, dict(state=DEAD, attempts=2, reason="rejected")),
    "release": (Release(), {}, {}, dict(state=READY, deliveries=1)),
    "release at the last delivery": (
        Release(),
        {"attempts": 4, "deliveries": 8},
        {},
        dict(state=READY, deliveries=7),
    ),
    "park": (Park(), {}, {}, dict(state=SCHEDULED, deliveries=1, delay=30, reason="UNKNOWN_TASK")),
    "reclaim": (Reclaim(), {}, {}, dict(state=READY, reason=LEASE_EXPIRED)),
    "reclaim, counted": (
        Reclaim(),
        {},
        {"retry": COUNT},
        dict(state=READY, attempts=2, reason=LEASE_EXPIRED),
    ),
    "reclaim, counted, with backoff": (
        Reclaim(),
        {},
        {"retry": BACKOFF},
        dict(state=SCHEDULED, attempts=2, delay=4.0, reason=LEASE_EXPIRED),
    ),
    "reclaim, deliveries used up": (
        Reclaim(),
        {"deliveries": 8},
        {},
        dict(state=DEAD, reason=FOR_GOOD),
    ),
    "reclaim, counted, attempts used up": (
        Reclaim(),
        {"attempts": 4},
        {"retry": COUNT},
        dict(state=DEAD, attempts=5, reason=NONE_LEFT),
    ),
    "reclaim of a suspect not begun": (
        Reclaim(),
        {"flags": Flag.UNBEGUN, "attempts": 4, "deliveries": 8},
        {"retry": BACKOFF},
        dict(state=READY, deliveries=7, reason=LEASE_EXPIRED),
    ),
    "cancelled": (
        SettleCancelled("x"),
        REQUESTED,
        {},
        dict(state=State.CANCELLED, reason="requested"),
    ),
    "fail, cancel requested": (Fail("x"), REQUESTED, {}, dict(state=State.FAILED, attempts=2)),
    "reject, cancel requested": (
        SettleReject("x"),
        REQUESTED,
        {},
        dict(state=DEAD, attempts=2, reason="rejected"),
    ),
    "fail, from dead": (Fail("x"), FROM_DEAD, {}, dict(state=State.FAILED, attempts=2)),
}
ROWS |= {
    f"{done.verb}, cancel requested": (
        done,
        REQUESTED,
        {},
        dict(state=State.CANCELLED, reason="requested"),
    )
    for done in (Nack("x"), Release(), Park(), Reclaim())
}
ROWS |= {
    f"{done.verb}, from dead": (
        done,
        FROM_DEAD | {"deliveries": 8},
        {"retry": COUNT},
        dict(state=DEAD, reason="overflow"),
    )
    for done in (Nack("x"), SettleReject("x"), Release(), Park(), SettleCancelled("x"), Reclaim())
}


@pytest.mark.parametrize("name", ROWS)
def test_a_settlement_becomes_what_the_contract_says(name: str) -> None:
    settlement, changes, settings, expected = ROWS[name]
    held = lease(**changes)
    unchanged = Move(
        id=held.id,
        fence=held.fence,
        seen_flags=held.flags,
        verb=settlement.verb,
        state=State.CLAIMED,
        attempts=held.attempts,
        deliveries=held.deliveries,
        error=LEASE_EXPIRED if settlement == Reclaim() else getattr(settlement, "error", None),
        expired_by=NOW if settlement == Reclaim() else None,
    )
    assert settle(held, settlement, replace(QUEUE, **settings), half) == replace(
        unchanged, **expected
    )


@pytest.mark.parametrize("settlement", [Nack(), Park()])
def test_only_in_a_queue_by_ready_time_a_retry_is_placed_by_its_due_time(
    settlement: Settlement,
) -> None:
    assert settle(LEASE, settlement, replace(QUEUE, ordering="ready_time")).rank_by_due
    assert not settle(LEASE, settlement, QUEUE).rank_by_due


def test_parks_double_from_30_seconds_to_10_minutes_and_stay_there() -> None:
    delays = [settle(lease(parked=count), Park(), QUEUE).delay for count in (*range(7), 10_000)]
    assert delays == [30, 60, 120, 240, 480, 600, 600, 600]


@pytest.mark.parametrize(("name", "delay"), [("codeq", 900), ("default", 5000)])
def test_only_a_clamping_queue_bounds_the_delay_of_a_nack(name: str, delay: float) -> None:
    assert settle(LEASE, Nack(delay=5000), get_preset(name)).delay == delay


@pytest.mark.parametrize(("max_total", "state"), [(67.0, SCHEDULED), (66.9, DEAD)])
def test_a_nack_whose_next_run_would_pass_max_total_is_dead(max_total: float, state: State) -> None:
    settings = replace(QUEUE, backoff=Backoff(jitter="none", max_total=max_total))
    move = settle(LEASE, Nack(delay=7), settings)
    assert (move.state, move.reason) == (state, NONE_LEFT if state is DEAD else None)


@pytest.mark.parametrize(("max_total", "state"), [(60.0, READY), (59.9, DEAD)])
def test_a_reclaim_past_max_total_is_dead(max_total: float, state: State) -> None:
    settings = replace(QUEUE, backoff=Backoff(jitter="none", max_total=max_total))
    assert settle(LEASE, Reclaim(), settings).state is state


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        (PLAIN, (3, 6)),
        (Meta(max_attempts=10), (10, 13)),
        (Meta(max_deliveries=4), (3, 4)),
        (Meta(max_attempts=10, max_deliveries=11), (10, 11)),
    ],
)
def test_the_limits_of_a_message_come_before_those_of_its_queue(
    meta: Meta, expected: tuple[int, int]
) -> None:
    assert compute_limits(meta, get_preset("queuectl")) == expected


@pytest.mark.parametrize(
    ("nack", "state"),
    [
        (Nack(max_attempts=2), DEAD),
        (Nack(max_attempts=3), SCHEDULED),
        (Nack(delay=7, max_total=67), SCHEDULED),
        (Nack(delay=7, max_total=66), DEAD),
        (Nack(delay=7, max_total=0), DEAD),
    ],
)
def test_the_limits_of_a_nack_come_before_all_others(nack: Nack, state: State) -> None:
    generous = lease(meta=Meta(max_attempts=9))
    settings = replace(QUEUE, backoff=Backoff(jitter="none", max_total=1000))
    assert settle(generous, nack, settings).state is state


def test_seconds_are_counted_from_the_first_claim() -> None:
    settings = replace(QUEUE, backoff=Backoff(jitter="none", max_total=100))
    fresh = lease(first_claimed_at=NOW - 50 * SECOND)
    stale = lease(first_claimed_at=NOW - 101 * SECOND)
    assert [settle(each, Nack(), settings).state for each in (fresh, stale)] == [SCHEDULED, DEAD]
