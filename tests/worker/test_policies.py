"""What the end of a run becomes: by ack policy, retry strategy, and what the handler says."""

from typing import Any

import pytest

from penstock import (
    AckPolicy,
    Cancelled,
    Context,
    Message,
    Penstock,
    Reject,
    Retry,
    constant,
    exponential,
    linear,
    no_retry,
)
from penstock.errors import InvalidInput
from penstock.model import message
from penstock.model.message import State
from penstock.worker.ack_policy import NOT_SETTLED, AckRules, CodecError, TimedOut, Verdict, judge
from penstock.worker.local_context import make_local_context
from penstock.worker.retry_strategies import Strategy
from tests.app.scenes import counters, record, until, working

FIRST = make_local_context("task", "default").delivery
BOOM = ValueError("boom")
NACK = message.Nack("ValueError: boom")
REJECT = message.SettleReject("ValueError: boom")
LATE = message.Nack("TimedOut: late", reason="TIMEOUT")


@pytest.mark.parametrize(
    ("policy", "error", "verdict"),
    [
        ("nack_on_error", None, None),
        ("nack_on_error", BOOM, NACK),
        ("nack_on_error", TimedOut("late"), LATE),
        ("nack_on_error", CodecError("no int"), message.SettleReject("CodecError: no int")),
        ("reject_on_error", None, None),
        ("reject_on_error", BOOM, REJECT),
        ("reject_on_error", TimedOut("late"), message.SettleReject("TimedOut: late")),
        ("ack", None, None),
        ("ack", BOOM, None),
        ("ack", TimedOut("late"), None),
        ("ack_first", BOOM, None),
        ("manual", None, message.SettleReject(NOT_SETTLED)),
        ("manual", BOOM, REJECT),
        ("manual", TimedOut("late"), LATE),
    ],
)
def test_a_policy_decides(policy: str, error: BaseException | None, verdict: Verdict) -> None:
    assert judge(AckRules(AckPolicy(policy)), FIRST, error) == verdict


@pytest.mark.parametrize("policy", list(AckPolicy))
def test_what_a_handler_raises_on_purpose_beats_every_policy(policy: AckPolicy) -> None:
    rules = AckRules(policy)
    assert judge(rules, FIRST, Retry(5)) == message.Nack("Retry: retry", 5)
    assert judge(rules, FIRST, Retry(reason="x")) == message.Nack("Retry: x")
    assert judge(rules, FIRST, Reject("no")) == message.SettleReject("Reject: no")
    assert judge(rules, FIRST, Cancelled("stop")) == message.SettleCancelled()


def test_errors_that_are_not_to_be_retried_are_rejected() -> None:
    only = AckRules(retry_on=(OSError,))
    assert judge(only, FIRST, ConnectionError("x")) == message.Nack("ConnectionError: x")
    assert judge(only, FIRST, BOOM) == REJECT
    assert judge(only, FIRST, TimedOut("late")) == LATE
    never = AckRules(no_retry_on=(KeyError, ValueError))
    assert judge(never, FIRST, BOOM) == REJECT
    assert judge(never, FIRST, OSError("x")) == message.Nack("OSError: x")
    both = AckRules(retry_on=(OSError,), no_retry_on=(ConnectionError,))
    assert judge(both, FIRST, ConnectionError("x")) == message.SettleReject("ConnectionError: x")


class Own:
    """A strategy of one's own."""

    max_attempts = 7

    def __init__(self, *delays: Any) -> None:
        self.delays = delays

    def delay(self, attempt: int) -> float | None:
        delay: float | None = self.delays[attempt - 1]
        return delay


@pytest.mark.parametrize(
    ("strategy", "delays"),
    [
        (constant(5), [5, 5, 5]),
        (linear(1, 2), [1, 3, 5]),
        (linear(1, 2, longest=4), [1, 3, 4]),
        (exponential(1, 2), [1, 2, 4]),
        (exponential(3, 10, longest=100), [3, 30, 100]),
        (no_retry(), [0, 0, 0]),
        (Own(0.5, 7, 0), [0.5, 7, 0]),
    ],
)
def test_a_strategy_gives_the_delay_after_each_run(strategy: Strategy, delays: list[float]) -> None:
    assert [strategy.delay(attempt) for attempt in (1, 2, 3)] == delays


@pytest.mark.parametrize(
    ("jitter", "least", "most"),
    [("full", 0, 10), ("equal", 5, 10), ("add:0.5", 10, 15), ("sym:0.2", 8, 12)],
)
def test_jitter_keeps_to_its_range(jitter: str, least: float, most: float) -> None:
    delays = {constant(10, jitter=jitter).delay(1) for _ in range(200)}
    assert len(delays) > 100
    assert all(delay is not None and least <= delay <= most for delay in delays)


def test_a_strategy_brings_its_own_limits() -> None:
    rules = AckRules(strategy=exponential(1, 2, max_attempts=3, max_total_delay=60))
    assert judge(rules, FIRST, BOOM) == message.Nack("ValueError: boom", 1, None, 3, 60)
    assert judge(AckRules(strategy=Own(2)), FIRST, BOOM) == message.Nack(
        "ValueError: boom", 2, None, 7, None
    )


def test_a_strategy_may_give_up() -> None:
    assert judge(AckRules(strategy=Own(None)), FIRST, BOOM) == REJECT


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        (Own(), "IndexError: tuple index out of range"),
        (Own(-1), "InvalidInput: delay is -1"),
        (Own(float("nan")), "InvalidInput: delay is nan"),
        (Own("soon"), "InvalidInput: delay is 'soon'"),
    ],
)
def test_a_broken_strategy_leaves_the_delay_to_the_queue(strategy: Strategy, told: str) -> None:
    verdict = judge(AckRules(strategy=strategy), FIRST, BOOM)
    assert isinstance(verdict, message.Nack)
    assert verdict.delay is None
    assert f"ValueError: boom; its retry strategy raised {told}" in (verdict.error or "")


def test_limits_that_make_no_sense_are_refused_when_they_are_given() -> None:
    with pytest.raises(InvalidInput, match="max_attempts is 0"):
        constant(1, max_attempts=0)
    with pytest.raises(InvalidInput, match="jitter"):
        constant(1, jitter="some")
    with pytest.raises(InvalidInput, match="delay is -3"):
        Retry(-3)


class Untellable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def test_an_error_that_cannot_be_told_is_still_an_error() -> None:
    assert judge(AckRules(), FIRST, Untellable()) == message.Nack(
        "Untellable: (its message cannot be read)"
    )
    assert judge(AckRules(), FIRST, ValueError()) == message.Nack("ValueError")
    told = judge(AckRules(), FIRST, ValueError("x" * 10_000))
    assert isinstance(told, message.Nack)
    assert len(told.error or "") == 4_000


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_acked_first_it_is_completed_before_it_runs_and_runs_once(
    app: Penstock, kind: str
) -> None:
    states: list[str] = []

    async def on_async(message: Message[int]) -> None:
        states.append((await record(app, message.id)).state)
        raise ValueError("too late to matter")

    def on_thread(message: Message[int]) -> None:
        states.append("ran")
        raise ValueError("too late to matter")

    app.subscriber("orders", policy="ack_first")(on_async if kind == "async" else on_thread)
    async with working(app) as worker:
        published = await app.apublish(message.Draft(queue="orders", body=b"1"))
        await until(lambda: worker.finished == 1)
        assert await counters(app, published.id) == ("completed", 1, 1)
        await until(lambda: not worker.busy)
    assert states == (["completed"] if kind == "async" else ["ran"])
    assert (worker.completed, worker.settled, worker.lost) == (1, 0, 0)


@pytest.mark.anyio
async def test_a_batch_acked_first_is_completed_whatever_it_raises(app: Penstock) -> None:
    @app.subscriber("orders", policy="ack_first", batch=10)
    async def on_orders(messages: list[Message[int]]) -> None:
        raise ValueError("too late to matter")

    drafts = [message.Draft(queue="orders", body=b"1") for _ in range(3)]
    ids = [(await app.apublish(draft)).id for draft in drafts]
    async with working(app) as worker:
        await until(lambda: worker.finished == 3 and not worker.busy)
    assert {await counters(app, id) for id in ids} == {("completed", 1, 1)}


@pytest.mark.anyio
async def test_the_first_call_by_hand_wins_over_later_ones_the_return_and_the_error(
    app: Penstock,
) -> None:
    @app.task(policy="manual", name="twice")
    async def twice(context: Context) -> None:
        context.nack(delay=100, error="first")
        context.ack()
        context.reject("third")

    @app.task(name="acked")
    async def acked(context: Context) -> str:
        context.ack()
        raise ValueError("after the ack")

    @app.task(name="rejected")
    def rejected(context: Context) -> str:
        context.reject("by hand")
        return "not kept"

    async with working(app) as worker:
        jobs = [await task.aenqueue() for task in (twice, acked, rejected)]
        await until(lambda: worker.completed + worker.settled == 3)
    found = [await record(app, job.id) for job in jobs]
    assert [(each.state, each.error) for each in found] == [
        (State.SCHEDULED, "first"),
        (State.COMPLETED, None),
        (State.DEAD, "by hand"),
    ]


@pytest.mark.anyio
async def test_a_settlement_by_hand_that_makes_no_sense_is_an_error_of_the_handler(
    app: Penstock,
) -> None:
    @app.task(max_attempts=1)
    async def wrong(context: Context) -> None:
        context.nack(delay=-5)

    async with working(app) as worker:
        job = await wrong.aenqueue()
        await until(lambda: worker.settled == 1)
    assert "delay is -5" in ((await record(app, job.id)).error or "")


@pytest.mark.anyio
async def test_a_retry_by_the_handler_comes_back_and_counts(app: Penstock) -> None:
    attempts: list[int] = []

    @app.task
    async def flaky(context: Context) -> int:
        attempts.append(context.attempt)
        if context.attempt < 3:
            raise Retry(delay=0)
        return context.attempt

    async with working(app):
        assert await (await flaky.aenqueue()).aresult(30) == 3
    assert attempts == [1, 2, 3]
