"""What the failing messages of a cause have in common is no chance."""

import json
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.analytics.triage import make_triage
from penstock.pipeline.lake.schema import MOMENT, TEXTS

pytestmark = pytest.mark.timeout(600)
MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
DAYS, QUEUES, CAUSES = 7, 3, 6
MESSAGES = 200
ATTEMPT = pa.schema([
    ("position", pa.int64()), ("id", pa.int64()), ("queue_id", pa.int64()), ("tenant", pa.string()),
    ("scope", pa.string()), ("queue", pa.string()), ("type", pa.string()), ("created_at", MOMENT),
    ("claimed_at", MOMENT), ("at", MOMENT), ("verb", pa.string()), ("state", pa.string()),
    ("error", pa.string()), ("fingerprint", pa.string()),
])  # fmt: skip
MESSAGE = pa.schema([
    ("id", pa.int64()), ("body", pa.binary()), ("headers", TEXTS), ("labels", TEXTS),
])  # fmt: skip
METRICS = pa.schema([
    ("hour", MOMENT), ("queue_id", pa.int64()), ("type", pa.string()), ("attempts", pa.int64()),
    ("failures", pa.int64()),
])  # fmt: skip
# Of a day and queue: as long as there is no rack, the week is at random.
PLANTED = (2, 1)
RACK = "the rack lost power"


class Week:
    """Half of all messages fail for one of some causes, whatever is in them; but for one rack."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.attempts: list[dict[str, Any]] = []
        self.messages: list[dict[str, Any]] = []
        self.metrics: list[dict[str, Any]] = []
        for day in range(DAYS):
            for queue_id in range(QUEUES):
                self.fill(day, queue_id)

    def fill(self, day: int, queue_id: int) -> None:
        failures = 0
        for _ in range(MESSAGES):
            rack = self.random.randrange(8)
            body = {"region": f"r{self.random.randrange(7)}", "rack": rack, "n": len(self.messages)}
            planted = (day, queue_id) == PLANTED and rack == 3
            error = RACK if planted else self.error()
            failures += error is not None
            self.add(day, queue_id, body, error)
        hour = MONDAY + timedelta(days=day)
        self.metrics.append({"hour": hour, "queue_id": queue_id, "type": "letter",
                             "attempts": MESSAGES, "failures": failures})  # fmt: skip

    def error(self) -> str | None:
        return f"cause {self.random.randrange(CAUSES)}" if self.random.random() < 0.5 else None

    def add(self, day: int, queue_id: int, body: dict[str, Any], error: str | None) -> None:
        number = len(self.messages) + 1
        at = MONDAY + timedelta(days=day, seconds=number % 3_600)
        self.messages.append({
            "id": number, "body": json.dumps(body).encode(), "headers": [],
            "labels": [("shard", str(self.random.randrange(4)))],
        })  # fmt: skip
        self.attempts.append({
            "position": number, "id": number, "queue_id": queue_id, "type": "letter",
            "created_at": at, "claimed_at": at, "at": at,
            "verb": "complete" if error is None else "nack",
            "state": "completed" if error is None else "ready",
            "error": error, "fingerprint": error,
        })  # fmt: skip


def test_chance_is_not_taken_for_something_in_common_and_a_planted_rack_is_found(
    spark: SparkSession,
) -> None:
    week = Week(seed=2026)
    frames = [
        spark.createDataFrame(pa.Table.from_pylist(rows, schema))
        for rows, schema in (
            (week.attempts, ATTEMPT), (week.messages, MESSAGE), (week.metrics, METRICS),
        )
    ]  # fmt: skip
    causes = make_triage(*frames).collect()
    common = {
        (cause.day_at.day - MONDAY.day, cause.queue_id, cause.error, each.name, each.value)
        for cause in causes
        for each in cause.attributes
    }
    sizes = Counter(cause.messages >= 10 for cause in causes)
    assert common == {(*PLANTED, RACK, "rack", "3")}
    assert sizes[True] > 100
