"""The bounds of a retry policy: attempts and deadline."""

import pytest

from penstock import retry_policies
from penstock.retry_policies import RetryPolicy

pytestmark = pytest.mark.anyio

POLICIES = {
    name: each for name, each in vars(retry_policies).items() if isinstance(each, RetryPolicy)
}


async def test_attempts_include_the_first_one() -> None:
    retries = RetryPolicy(attempts=3, delay=0.0, deadline=600.0).begin()
    assert [await retries.again() for _ in range(4)] == [True, True, False, False]


async def test_no_attempt_begins_after_the_deadline() -> None:
    retries = RetryPolicy(attempts=1_000, delay=0.0, deadline=600.0).begin()
    assert await retries.again()
    retries.ends_at -= 601
    assert not await retries.again()


def test_a_delay_that_would_pass_the_deadline_is_not_slept() -> None:
    assert not RetryPolicy(attempts=9, delay=600.0, deadline=1.0).begin().again_at_once()


def test_a_loop_that_does_not_sleep_has_the_same_bounds() -> None:
    retries = RetryPolicy(attempts=3, delay=0.0, deadline=600.0).begin()
    assert [retries.again_at_once() for _ in range(4)] == [True, True, False, False]


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_retries_within_a_minute(name: str) -> None:
    policy = POLICIES[name]
    assert policy.attempts > 1
    assert 0 < policy.deadline <= 60
    assert policy.delay <= policy.deadline
