"""How many runs a message gets, whatever happens to it."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model.message import (
    PLAIN,
    Flag,
    Meta,
    Nack,
    Park,
    Reclaim,
    Release,
    Settlement,
    State,
)
from penstock.model.settings import QueueSettings, RetrySettings, get_preset
from penstock.model.store_types import Lease, Move
from penstock.rules.lifecycle import settle
from tests.unit.leases import half, lease

READY, DEAD = State.READY, State.DEAD


def deliver(held: Lease, settlement: Settlement, settings: QueueSettings) -> tuple[Lease, Move]:
    """One delivery more, and how it ends."""
    held = replace(held, deliveries=held.deliveries + 1)
    move = settle(held, settlement, settings, half)
    return replace(held, attempts=move.attempts, deliveries=move.deliveries), move


def run_to_the_end(settings: QueueSettings, settlement: Settlement, meta: Meta = PLAIN) -> Move:
    held, move = deliver(lease(attempts=0, deliveries=0, meta=meta), settlement, settings)
    while move.state is not DEAD:
        held, move = deliver(held, settlement, settings)
    return move


MAX_ATTEMPTS = st.integers(1, 60)
COUNTING = st.sampled_from(["attempts", "deliveries"])
COUNTED = st.sampled_from(["count", "backoff"])


@given(MAX_ATTEMPTS, st.builds(RetrySettings, COUNTING), st.sampled_from([Nack(), Nack(delay=0)]))
def test_max_attempts_n_means_n_runs_for_nacks(most: int, retry: RetrySettings, nack: Nack) -> None:
    end = run_to_the_end(QueueSettings(max_attempts=most, retry=retry), nack)
    assert (end.deliveries, end.attempts, end.reason) == (most, most, "retries_exhausted")


@given(MAX_ATTEMPTS, st.builds(RetrySettings, COUNTING, COUNTED))
def test_max_attempts_n_means_n_runs_for_counted_crashes(most: int, retry: RetrySettings) -> None:
    end = run_to_the_end(QueueSettings(max_attempts=most, retry=retry), Reclaim())
    assert (end.deliveries, end.attempts, end.reason) == (most, most, "retries_exhausted")


@given(
    MAX_ATTEMPTS, st.builds(RetrySettings, COUNTING, COUNTED), st.lists(st.booleans(), min_size=60)
)
def test_max_attempts_n_means_n_runs_however_nacks_and_crashes_mix(
    most: int, retry: RetrySettings, crashes: list[bool]
) -> None:
    settings, held, runs = QueueSettings(max_attempts=most, retry=retry), lease(), 0
    held, state = replace(held, attempts=0, deliveries=0), READY
    while state is not DEAD:
        held, move = deliver(held, Reclaim() if crashes[runs] else Nack(), settings)
        state, runs = move.state, runs + 1
    assert runs == most


@given(
    MAX_ATTEMPTS,
    st.sampled_from(["default", "scaiqueue", "relay", "codeq", "faststream", "queuectl"]),
)
def test_max_attempts_n_of_a_message_means_n_runs_in_any_queue(most: int, name: str) -> None:
    assert run_to_the_end(get_preset(name), Nack(), Meta(max_attempts=most)).deliveries == most


@given(MAX_ATTEMPTS, st.none() | st.integers(1, 99))
def test_crashes_that_do_not_count_end_at_max_deliveries(most: int, deliveries: int | None) -> None:
    settings = QueueSettings(max_attempts=most, max_deliveries=deliveries)
    end = run_to_the_end(settings, Reclaim())
    assert (end.deliveries, end.attempts) == (deliveries or most + 3, 0)
    assert end.reason == "max_deliveries"


@given(st.integers(1, 200), st.sampled_from([Release(), Park()]), st.sampled_from([0, Flag.KEYED]))
def test_what_is_handed_back_costs_nothing_however_often(
    times: int, settlement: Settlement, flags: int
) -> None:
    held = lease(attempts=0, deliveries=0, flags=flags)
    for _ in range(times):
        held, move = deliver(held, settlement, get_preset("relay"))
        assert (move.attempts, move.deliveries, move.frees) == (0, 0, False)


@given(st.integers(1, 200))
def test_a_suspect_that_never_began_survives_any_number_of_crashes(times: int) -> None:
    held = lease(attempts=1, deliveries=2, flags=Flag.UNBEGUN)
    for _ in range(times):
        held, move = deliver(held, Reclaim(), get_preset("relay"))
        assert (move.state, held.attempts, held.deliveries) == (READY, 1, 2)
