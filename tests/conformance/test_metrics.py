"""Metrics as operators read them: points of a range, consumers, anomalies."""

from typing import Any

import pytest
from msgspec.structs import asdict

from penstock.broker.anomalies import AnomalyQuery, make_case, record_anomalies
from penstock.errors import InvalidInput, NotFound
from penstock.model.message import Nack, SettleReject
from tests.conformance.stage import HOUR, Stage
from tests.conformance.test_historian import early_in_an_hour, watch

pytestmark = pytest.mark.anyio
__all__ = ["early_in_an_hour"]
SECOND = 1_000_000


@pytest.mark.parametrize("counted", [True, False])
async def test_points_add_up_to_what_happened(stage: Stage, counted: bool) -> None:
    """Whether the historian has seen the rows or not."""
    begin = await stage.store.now()
    for number in range(3):
        await stage.publish_each(number + 1)
        await stage.drain()
        if counted:
            await watch(stage, by=str(number))
        await stage.travel(60)
    await stage.publish()
    await stage.dead("default", priority=9)
    found = await stage.broker.metrics.queue("default", since=begin)
    assert [sum(getattr(p, name) for p in found.points)
            for name in ("published", "completed", "dead", "attempts")] == [8, 6, 1, 7]  # fmt: skip
    assert [p.completed for p in found.points if p.completed] == [1, 2, 3]
    assert (found.points[-1].unfinished, found.points[-1].dead_letters) == (1, 1)
    assert (found.live.ready, found.live.dead) == (1, 1)
    assert found.points[-1].provisional


async def test_hours_have_percentiles_and_minutes_have_means(stage: Stage) -> None:
    for seconds in (1, 2, 3):
        await stage.publish()
        leased = await stage.take()
        await stage.travel(seconds)
        await stage.broker.complete(leased)
    await watch(stage)
    (hour,) = (await stage.broker.metrics.queue("default", step=HOUR)).points[-1:]
    assert hour.run_p50 == pytest.approx(2, rel=0.1)
    assert hour.run_p99 == pytest.approx(3, rel=0.1)
    minutes = (await stage.broker.metrics.queue("default")).points
    assert [p.run_p50 for p in minutes if p.attempts] == [None]
    (busy,) = [p for p in minutes if p.attempts]
    assert busy.run_mean == pytest.approx(2, rel=0.2)
    assert (busy.run_max or 0) >= 3


async def test_the_backlog_is_carried_through_hours_in_which_nothing_happens(stage: Stage) -> None:
    await stage.publish_each(2)
    await watch(stage)
    await stage.travel(3 * HOUR)
    await stage.drain()
    await watch(stage, by="b")
    await stage.travel(HOUR)
    now = await stage.store.now()
    found = await stage.broker.metrics.queue("default", since=now - 5 * int(HOUR) * SECOND,
                                             step=HOUR)  # fmt: skip
    assert [p.unfinished for p in found.points] == [0, 2, 2, 2, 0, 0]
    middle = await stage.broker.metrics.queue(
        "default", since=now - int(2.5 * HOUR) * SECOND, until=now - int(2.2 * HOUR) * SECOND
    )
    assert {p.unfinished for p in middle.points} == {2}


async def test_a_type_is_told_apart(stage: Stage) -> None:
    await stage.publish(type="a")
    await stage.publish(type="b")
    await watch(stage)
    found = await stage.broker.metrics.queue("default", type="a")
    assert sum(p.published for p in found.points) == 1


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"step": 90}, "whole minutes"),
        ({"step": 5_400}, "whole hours"),
        ({"step": 0}, "whole minutes"),
        ({"since": 0}, "more than 2000 steps"),
        ({"since": 0, "step": 3_600}, "more than 2000 steps"),
        ({"since": 2**52}, "in the future"),
    ],
)
async def test_a_range_that_makes_no_sense_is_refused(
    stage: Stage, how: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        await stage.broker.metrics.queue("default", **how)


async def test_old_minutes_are_gone(stage: Stage) -> None:
    since = await stage.store.now() - 49 * int(HOUR) * SECOND
    until = since + 600 * SECOND
    with pytest.raises(InvalidInput, match="minutes are kept for 48 hours"):
        await stage.broker.metrics.queue("default", since=since, until=until)


async def test_a_queue_that_does_not_exist_has_no_metrics(stage: Stage) -> None:
    with pytest.raises(NotFound):
        await stage.broker.metrics.queue("nowhere")


async def test_consumers_are_added_up_over_hours(stage: Stage) -> None:
    begin = await stage.store.now()
    for _ in range(2):
        await stage.publish_each(3)
        claimed = await stage.broker.claim("default", limit=3, consumer="ada")
        first, second, third = claimed.messages
        await stage.broker.complete(first)
        await stage.broker.settle(second, SettleReject("no"))
        await stage.broker.settle(third, Nack("later", delay=3 * HOUR))
        await watch(stage)
        await stage.travel(HOUR)
    (ada,) = (await stage.broker.metrics.consumers(since=begin)).consumers
    assert (ada.consumer, ada.queue, ada.attempts, ada.completed, ada.failures, ada.lost) == (
        "ada", "default", 6, 2, 4, 0,
    )  # fmt: skip
    (last,) = (await stage.broker.metrics.consumers(since=begin + int(HOUR) * SECOND)).consumers
    assert last.attempts == 3


async def test_an_anomaly_opens_goes_on_and_is_resolved(stage: Stage) -> None:
    await stage.dead()
    await watch(stage)
    (found,) = (await stage.broker.anomalies.list()).anomalies
    assert (found.kind, found.state, found.severity, found.count) == (
        "dlq_movement", "open", "critical", 1,
    )  # fmt: skip
    await stage.travel(300)
    await stage.dead()
    await watch(stage, by="b")
    (again,) = (await stage.broker.anomalies.list()).anomalies
    assert (again.id, again.state, again.count) == (found.id, "open", 2)
    assert again.text == "2 messages moved to dead letters"
    await stage.travel(601)
    (over,) = (await stage.broker.anomalies.list()).anomalies
    assert (over.state, over.resolved_at) == ("resolved", over.last_at + 600 * SECOND)
    open_now = AnomalyQuery(state="open")
    assert (await stage.broker.anomalies.list(open_now)).anomalies == []


async def test_anomalies_are_selected_and_summed_up(stage: Stage) -> None:
    await stage.queue("work")
    await stage.dead("work")
    await stage.completed("work", body=b"x" * 6_000)
    await stage.completed("default", body=b"x" * 6_000)
    await watch(stage)
    report = await stage.broker.anomalies.list()
    assert report.by_kind == {"large_payload": 2, "dlq_movement": 1}
    assert report.by_severity == {"info": 2, "critical": 1}
    for query, kinds in {
        AnomalyQuery(kinds=("dlq_movement",)): ["dlq_movement"],
        AnomalyQuery(severities=("info",), queues=("wo*",)): ["large_payload"],
        AnomalyQuery(queues=("nowhere",)): [],
    }.items():
        assert [each.kind for each in (await stage.broker.anomalies.list(query)).anomalies] == kinds


async def test_processes_add_to_the_same_anomaly(stage: Stage) -> None:
    now, queue_id = await stage.store.now(), await stage.queue_id()
    other = await stage.another()
    for each in (stage, other, stage):
        cases = [make_case("lock_stolen", now, queue_id=queue_id, consumer="ada", count=2)]
        await record_anomalies(each.store, each.broker.directory, cases)
    (found,) = (await stage.broker.anomalies.list()).anomalies
    assert (asdict(found)["kind"], found.consumer, found.count) == ("lock_stolen", "ada", 6)


async def test_minutes_of_the_last_hour_have_percentiles_of_the_wait(stage: Stage) -> None:
    """Those of one queue, and of all queues added up."""
    await stage.queue("other")
    for queue, seconds in (("default", 1), ("default", 1), ("other", 40)):
        await stage.publish(queue=queue)
        await stage.travel(seconds)
        await stage.broker.complete(await stage.take(queue))
    await watch(stage)
    (busy,) = [p for p in (await stage.broker.metrics.queue("default")).points if p.attempts]
    assert busy.wait_p95 == pytest.approx(1, rel=0.15)
    queues = await stage.broker.admin.queues()
    minutes = await stage.broker.metrics.sum_hour(queues)
    assert sum(each.completed for each in minutes) == 3
    assert max(each.wait_p99 or 0 for each in minutes) == pytest.approx(40, rel=0.15)
