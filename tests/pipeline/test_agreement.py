"""The historian and Spark derive the same rows from the same history."""

import asyncio
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.agents.historian import Historian
from penstock.broker.local import Broker
from penstock.broker.metrics.rows import (
    ANOMALY,
    BACKLOG_MINUTES,
    CONSUMER_HOUR,
    QUEUE_HOUR,
    read_rows,
)
from penstock.model.anomalies import HISTORY_KINDS
from penstock.model.metrics import COUNTS
from penstock.rules.anomalies import is_reported
from penstock.stores import open as open_store
from penstock.testing.simulation import START, ManualClock
from tests.pipeline.analysed import CHANGES, Days
from tests.pipeline.test_analyse import rows_of
from tests.pipeline.weeks import micros

pytestmark = pytest.mark.timeout(600)
SECOND = 1_000_000
Rows = dict[tuple[Any, ...], Any]


async def watch(url: str) -> dict[str, list[tuple[str, Any]]]:
    async with await open_store(url, clock=ManualClock(START)) as store:
        broker = Broker(store)
        changes = dict(each.split("=") for each in CHANGES)
        thresholds = {name: float(value) for name, value in changes.items()}
        await broker.admin.set_queue("mail", anomalies={"thresholds": thresholds})
        await Historian(store, broker.directory, "test").tick()
        kinds = (QUEUE_HOUR, CONSUMER_HOUR, ANOMALY, BACKLOG_MINUTES)
        return {kind: await read_rows(store, kind, "", "~", 10_000) for kind in kinds}


def seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / SECOND


def histogram(rows: Any) -> dict[int, int]:
    pairs = [(row["bucket"], row["count"]) for row in rows or ()]
    return {int(bucket): int(count) for bucket, count in pairs}


def test_online_rows_are_those_of_spark(days: Days, tmp_path: Path) -> None:
    lake = days.lake
    shutil.copy(days.lake.parent / "store.db", tmp_path / "store.db")
    online = asyncio.run(watch(f"sqlite:///{tmp_path / 'store.db'}"))
    assert {
        (queue, int(hour), type_): (*row.counts, *map(seconds, (row.wait_max, row.run_max)),
                                    row.wait_sum / SECOND, row.run_sum / SECOND, row.wait, row.run)
        for (queue, hour, type_), row in split(online[QUEUE_HOUR])
    } == {
        (f"{row['queue_id']:010d}", micros(row["hour"]) // SECOND, row["type"]): (
            *(row[name] for name in COUNTS), row["wait_max"], row["run_max"],
            row["wait_sum"] or 0.0, row["run_sum"] or 0.0,
            histogram(row["wait_histogram"]), histogram(row["run_histogram"]),
        )
        for row in rows_of(lake, "metrics_hour")
    }  # fmt: skip
    assert online_consumers(online) == spark_consumers(lake)
    assert online_backlog(online) == spark_backlog(lake)
    found, expected = online_anomalies(online), spark_anomalies(lake)
    assert found == expected
    assert {row[0] for row in found.values()} >= {"bulk_enqueue", "burst_dequeue", "near_dlq"}


def split(rows: list[tuple[str, Any]]) -> list[tuple[list[str], Any]]:
    return [(name.split("/", 2), row) for name, row in rows]


def online_consumers(online: Mapping[str, list[tuple[str, Any]]]) -> Rows:
    return {
        (int(hour), int(queue), consumer): (
            row.attempts, row.completed, row.failures, row.lost, row.busy / SECOND,
            row.run_max / SECOND, row.first_at, row.last_at,
        )
        for (hour, queue, consumer), row in split(online[CONSUMER_HOUR])
    }  # fmt: skip


def spark_consumers(lake: Path) -> Rows:
    return {
        (micros(row["hour"]) // SECOND, row["queue_id"], row["consumer"]): (
            row["attempts"], row["completed"], row["failures"], row["lost"], row["busy"],
            row["run_max"], micros(row["first_at"]), micros(row["last_at"]),
        )
        for row in rows_of(lake, "consumer_hour")
    }  # fmt: skip


def online_backlog(online: Mapping[str, list[tuple[str, Any]]]) -> Rows:
    return {
        (int(queue), int(hour) + 60 * minute): tuple(changes)
        for (queue, hour), row in split(online[BACKLOG_MINUTES])
        for minute, changes in row.items()
        if any(changes)
    }


def spark_backlog(lake: Path) -> Rows:
    found = {
        (row["queue_id"], micros(row["minute"]) // SECOND): (
            row["arrived"], row["left"], row["died"],
        )
        for row in rows_of(lake, "backlog_minute")
    }  # fmt: skip
    return {key: changes for key, changes in found.items() if any(changes)}


def online_anomalies(online: Mapping[str, list[tuple[str, Any]]]) -> Rows:
    rows = [row for _, row in online[ANOMALY] if is_reported(row) and row.kind in HISTORY_KINDS]
    return {
        (row.id,): (row.kind, row.severity, row.count, row.value, row.threshold, row.message_id)
        for row in rows
    }


def spark_anomalies(lake: Path) -> Rows:
    return {
        (row["id"],): (
            row["kind"], row["severity"], row["count"], row["value"], row["threshold"],
            row["message_id"],
        )
        for row in msgspec.convert(rows_of(lake, "anomaly"), list[dict[str, Any]])
    }  # fmt: skip
