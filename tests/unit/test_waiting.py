"""The rules of waits: counters, bounds, policies, and masks that come from the model."""

import re
from pathlib import Path

import pytest

from penstock import constant
from penstock.errors import NotFound
from penstock.model.message import PLAIN, Flag, Meta, State, Verb
from penstock.model.store_types import Lease, Move
from penstock.model.waiting import Hold, PastWait, StepRecord, Wait, WaitFacts
from penstock.rules.callback_tokens import CallbackClaims, make_token, read_token
from penstock.rules.waiting import (
    MAX_QUICK_WAITS,
    MAX_STEPS,
    WaitRequest,
    decide_after,
    decide_wait,
)
from penstock.worker.step_calls import try_again
from tests.unit.virtual_loop import now, run_virtually

STORES = Path(__file__).parents[2] / "src/penstock/stores"
SLEEP = WaitRequest(reason="sleep", holds=(Hold(kind="moment", delay=60.0),))
STEP = StepRecord(name="charge", key="1")


def make_lease(flags: int = 0, meta: Meta = PLAIN) -> Lease:
    return Lease(1, 7, 1, 2, 3, flags, 10_000_000, 40_000_000, 30.0, 11_000_000, meta, 10_000_000)


def test_a_wait_that_stored_something_starts_the_counters_again() -> None:
    kept = decide_wait(make_lease(), SLEEP, WaitFacts(recorded=True), 1_000)
    assert isinstance(kept, Wait)
    assert (kept.attempts, kept.deliveries) == (0, 0)
    new = decide_wait(make_lease(), WaitRequest(reason="sleep", steps=(STEP,)), WaitFacts(), 1_000)
    assert isinstance(new, Wait)
    assert (new.attempts, new.deliveries) == (0, 0)


def test_a_wait_that_stored_nothing_counts_like_a_nack() -> None:
    counted = decide_wait(make_lease(), SLEEP, WaitFacts(), 1_000)
    assert isinstance(counted, Wait)
    assert (counted.attempts, counted.deliveries) == (3, 3)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [(WaitFacts(waits=1_000), "max_waits"), (WaitFacts(steps=MAX_STEPS + 1), "max_steps")],
)
def test_a_message_past_a_bound_is_dead(facts: WaitFacts, reason: str) -> None:
    ended = decide_wait(make_lease(), SLEEP, facts, 1_000)
    assert isinstance(ended, Move)
    assert (ended.verb, ended.state, ended.reason) == (Verb.WAIT, State.DEAD, reason)


def test_a_cancel_request_ends_a_message_that_would_wait() -> None:
    ended = decide_wait(make_lease(Flag.CANCEL_REQUESTED), SLEEP, WaitFacts(), 1_000)
    assert isinstance(ended, Move)
    assert (ended.state, ended.reason) == (State.CANCELLED, "requested")


def test_quick_waits_in_a_row_are_delayed() -> None:
    quick = [PastWait(9_500_000 - n * 100_000, 9_450_000 - n * 100_000, None) for n in range(10)]
    for count, delayed in ((MAX_QUICK_WAITS - 1, 1), (MAX_QUICK_WAITS, 2)):
        kept = decide_wait(make_lease(), SLEEP, WaitFacts(recent=tuple(quick[:count])), 1_000)
        assert isinstance(kept, Wait)
        assert len(kept.holds) == delayed


@pytest.mark.parametrize(
    ("lasted", "due_in", "delayed"),
    [
        # Waits that were delayed by a second before.
        (1_500_000, 1_000_000, True),
        # Waits that lasted longer by themselves.
        (1_500_000, None, False),
        (1_500_000, 2_000_000, False),
        (4_000_000, 1_000_000, False),
    ],
)
def test_a_delay_does_not_end_a_row_of_quick_waits(
    lasted: int, due_in: int | None, delayed: bool
) -> None:
    past: list[PastWait] = []
    claimed_at = make_lease().claimed_at
    for _ in range(MAX_QUICK_WAITS):
        at = claimed_at - lasted
        past.append(PastWait(at, at - 1_000, None if due_in is None else at + due_in))
        claimed_at = at - 1_000
    kept = decide_wait(make_lease(), SLEEP, WaitFacts(recent=tuple(past)), 1_000)
    assert isinstance(kept, Wait)
    assert len(kept.holds) == 1 + delayed


@pytest.mark.parametrize(
    ("policy", "need", "counts", "met"),
    [
        ("all", 1, {}, True),
        ("all", 1, {"completed": 2}, True),
        ("all", 1, {"completed": 1, None: 1}, None),
        ("all", 1, {"failed": 1, None: 1}, False),
        ("any", 2, {"completed": 2, None: 5}, True),
        ("any", 2, {"completed": 1, None: 1}, None),
        ("any", 2, {"completed": 1, "dead": 3}, False),
        ("settled", 1, {"failed": 1, "dead": 1}, True),
        ("settled", 1, {None: 1}, None),
        ("decision", 1, {}, None),
    ],
)
def test_a_policy_decides_when_dependencies_are_met(
    policy: str, need: int, counts: dict[str | None, int], met: bool | None
) -> None:
    assert decide_after(policy, need, counts) is met


def test_no_statement_or_script_has_a_mask_of_its_own() -> None:
    literal = re.compile(r"flags\s*[&|]\s*~?\d|bit\.(band|bor)\([^()]*,\s*\d+\)")
    files = [*STORES.rglob("*.sql"), *STORES.rglob("*.lua")]
    assert [file.name for file in files if literal.search(file.read_text())] == []


@pytest.mark.parametrize("extra", ["!", "=", "\n", "A"])
def test_a_callback_token_has_one_spelling(extra: str) -> None:
    claims = CallbackClaims(7, "paid", 10)
    token = make_token(b"secret", claims)
    assert read_token(b"secret", token) == claims
    with pytest.raises(NotFound):
        read_token(b"secret", token + extra)


@pytest.mark.parametrize(("pause", "tries"), [(0, 5), (50, 2)])
def test_a_step_is_tried_five_times_within_a_minute(pause: float, tries: int) -> None:
    tried: list[float] = []

    async def fail() -> None:
        tried.append(now())
        raise OSError("no")

    with pytest.raises((OSError, TimeoutError)):
        run_virtually(try_again(fail, constant(pause, max_attempts=9)))
    assert tried == [each * pause for each in range(tries)]
