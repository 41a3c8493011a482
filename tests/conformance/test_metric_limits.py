"""Limits of metrics and anomalies: what is beyond them is counted together, on every store."""

import pytest

from penstock.broker import anomalies
from penstock.broker.anomalies import AnomalyQuery, make_case, record_anomalies
from penstock.broker.metrics import accumulator, rows
from penstock.broker.metrics.rows import ANOMALY, CONSUMER_HOUR, QUEUE_HOUR, check_limits
from penstock.model.anomalies import AnomalyRow
from penstock.model.message import Draft, Nack, SettleReject
from penstock.model.metrics import OTHER
from penstock.store import Check
from tests.conformance.stage import HOUR, Stage
from tests.conformance.test_historian import counts, early_in_an_hour, rows_of, watch

pytestmark = pytest.mark.anyio
__all__ = ["early_in_an_hour"]
SECOND = 1_000_000


async def watch_again(stage: Stage) -> None:
    await stage.travel(3)
    await watch(stage)


async def list_types(stage: Stage, kind: str) -> dict[str, AnomalyRow]:
    """Returns the rows of a kind by the name of the queue and the type."""
    by_id = stage.broker.directory.by_id
    found = [row for _, row in await rows_of(stage, ANOMALY) if row.kind == kind]
    return {f"{by_id[row.queue_id].name} {row.type}": row for row in found}


async def test_series_beyond_the_limit_are_counted_by_queue(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accumulator, "MAX_SERIES", 3)
    for queue in ("mail", "work"):
        await stage.queue(queue)
        for number in range(3):
            await stage.publish(queue=queue, type=f"t{number}")
        await watch_again(stage)
    names = [name.split("/")[-1] for name, _ in await rows_of(stage, QUEUE_HOUR)]
    assert sorted(names) == [OTHER, "t0", "t1", "t2"]
    assert await counts(stage) == {"published": 6}
    assert await check_limits(stage.store) == Check(
        "metrics", "more than the limit of series; the rest is counted as other", False
    )


async def test_consumers_beyond_the_limit_are_counted_by_queue(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accumulator, "MAX_CONSUMERS", 1)
    for consumer in ("ada", "bob", "cay"):
        await stage.publish()
        (leased,) = (await stage.broker.claim("default", consumer=consumer)).messages
        await stage.broker.complete(leased)
        await watch_again(stage)
    found = {name.split("/")[-1]: row for name, row in await rows_of(stage, CONSUMER_HOUR)}
    assert {name: row.completed for name, row in found.items()} == {"ada": 1, OTHER: 2}
    assert "consumers" in (await check_limits(stage.store)).text


async def test_anomalies_beyond_the_limit_of_their_scope_are_counted_by_queue(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of another scope have a limit of their own."""
    monkeypatch.setattr(accumulator, "MAX_ANOMALIES_PER_KIND", 1)
    await stage.queue("work")
    for queue, type_ in (("default", "a"), ("default", "b"), ("default", "c"), ("work", "a")):
        await stage.dead(queue, type=type_)
        await watch_again(stage)
    await stage.admin.create_scope("orders")
    await stage.admin.create_queue("default", scope="orders")
    await stage.broker.publish(Draft(type="a"), scope="orders")
    claimed = await stage.broker.claim("default", scope="orders", consumer="ada")
    await stage.broker.settle(claimed.messages[0], SettleReject("no"))
    await watch_again(stage)
    found = [row for _, row in await rows_of(stage, ANOMALY) if row.kind == "dlq_movement"]
    orders = (await stage.admin.queue("default", scope="orders")).id
    assert {(row.queue_id, row.type, row.count) for row in found} == {
        (await stage.queue_id(), "a", 1),
        (await stage.queue_id(), OTHER, 2),
        (await stage.queue_id("work"), OTHER, 1),
        (orders, "a", 1),
    }
    scopes = (await check_limits(stage.store)).text
    assert "dlq_movement anomalies of scope" in scopes
    assert "orders" not in scopes


async def test_storms_beyond_the_limit_are_kept_with_the_worst_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour is judged again with each case, which does not count its cases again."""
    monkeypatch.setattr(accumulator, "MAX_ANOMALIES_PER_KIND", 1)
    limits = {"storm_retries": 2}
    await stage.queue("work", anomalies={"thresholds": limits}, backoff={"kind": "none"})
    for type_, retries in (("a", 2), ("b", 3), ("c", 2)):
        id = await stage.publish(queue="work", type=type_)
        for _ in range(retries):
            await stage.broker.settle(await stage.take("work"), Nack("no"))
            await watch_again(stage)
        await stage.admin.cancel(id)
    found = await list_types(stage, "retry_storm")
    assert {name: row.count for name, row in found.items()} == {"work a": 2, f"work {OTHER}": 3}


async def test_recorded_anomalies_beyond_the_limit_are_counted_by_queue(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (anomalies, rows):
        monkeypatch.setattr(module, "MAX_ANOMALIES_PER_KIND", 2)
    now, queue_id = await stage.store.now(), await stage.queue_id()
    for consumer in ("ada", "bob", "cay", "dan", "ada"):
        case = make_case("lock_stolen", now, queue_id=queue_id, consumer=consumer)
        await record_anomalies(stage.store, stage.broker.directory, [case])
    missed = make_case("no_consumer", now, queue_id=queue_id)
    await record_anomalies(stage.store, stage.broker.directory, [missed, missed])
    found = (await stage.broker.anomalies.list()).anomalies
    assert {(each.kind, each.consumer, each.count) for each in found} == {
        ("lock_stolen", "ada", 2),
        ("lock_stolen", "bob", 1),
        ("lock_stolen", OTHER, 2),
        ("no_consumer", None, 2),
    }
    check = await check_limits(stage.store)
    assert (check.ok, "lock_stolen anomalies of scope" in check.text) == (False, True)


async def test_of_more_anomalies_than_are_read_the_newest_are_listed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anomalies, "MAX_ROWS", 3)
    since, queue_id = await stage.store.now(), await stage.queue_id()
    for hours in (0, 0, 5, 100):
        await stage.travel(hours * HOUR)
        now = await stage.store.now()
        case = make_case("lock_stolen", now, queue_id=queue_id, consumer=f"c{now}")
        await record_anomalies(stage.store, stage.broker.directory, [case])
        await stage.travel(1)
    whole = AnomalyQuery(since=since)
    report = await stage.broker.anomalies.list(whole)
    assert (len(report.anomalies), report.complete) == (3, False)
    moments = [each.last_at for each in report.anomalies]
    assert moments == sorted(moments, reverse=True)
    assert moments[0] - moments[1] > 99 * HOUR * SECOND
    assert moments[1] - moments[2] > 4 * HOUR * SECOND
    monkeypatch.setattr(anomalies, "MAX_ROWS", 4)
    report = await stage.broker.anomalies.list(whole)
    assert (len(report.anomalies), report.complete) == (4, True)
    assert (await stage.broker.anomalies.list()).complete
