"""Tries a routing rule on the messages of the lake: what it would have matched."""

from collections import Counter
from datetime import datetime
from typing import Any

from msgspec import Struct
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from penstock.errors import InvalidInput
from penstock.model.message import Draft
from penstock.model.queue import Queue, Scope
from penstock.model.routing import Rule, StoredRule, Trigger
from penstock.pipeline.lake.reader import read_lake
from penstock.pipeline.replay import TENANT, add_last_state
from penstock.rules.cel import EvaluationError, FieldMissing, get_engine
from penstock.rules.items import MOVED, REPLACED
from penstock.rules.routing import make_values
from penstock.rules.rule_book import CompiledRule
from penstock.rules.rule_checks import check_rule

COLUMNS = (
    "id", "queue", "type", "priority", "body", "content_type", "name", "headers", "labels",
    "ordering_key", "correlation_id", "state", "reason", "error", "attempts", "deliveries",
)  # fmt: skip


class BacktestResult(Struct, frozen=True, omit_defaults=True):
    """The number of messages of the lake that a rule would have matched, by queue.

    `gained` matched, but did not match the rule that it was compared with. With `lost` it is the
    other way round.
    """

    tried: int
    matched: int
    missing_field: int
    errors: int
    queues: dict[str, int]
    gained: int | None = None
    lost: int | None = None


def backtest(
    spark: SparkSession, lake: str, rule: Rule, since: datetime, against: Rule | None = None
) -> BacktestResult:
    """Spark reads and selects the messages, and the conditions are evaluated one by one."""
    compiled = compile_rule(rule)
    former = None if against is None else compile_rule(against)
    if against is not None and against.on is not rule.on:
        raise InvalidInput(
            f"rule {rule.name!r} is about messages that are {rule.on.value}, and the one to"
            f" compare with about those that are {against.on.value}"
        )
    counts: Counter[str] = Counter()
    queues: Counter[str] = Counter()
    for row in select_messages(spark, lake, rule, since).toLocalIterator():
        verdict = judge_row(compiled, row)
        matched = verdict == "matched"
        matched_before = former is not None and judge_row(former, row) == "matched"
        counts["gained"] += matched and not matched_before
        counts["lost"] += matched_before and not matched
        if verdict is None:
            continue
        counts["tried"] += 1
        counts[verdict] += 1
        if matched:
            queues[row.queue] += 1
    return BacktestResult(
        tried=counts["tried"],
        matched=counts["matched"],
        missing_field=counts["missing_field"],
        errors=counts["error"],
        queues=dict(sorted(queues.items())),
        gained=None if former is None else counts["gained"],
        lost=None if former is None else counts["lost"],
    )


def compile_rule(rule: Rule) -> CompiledRule:
    check_rule(rule)
    return CompiledRule(StoredRule(rule=rule, tenant=TENANT), get_engine())


def select_messages(spark: SparkSession, lake: str, rule: Rule, since: datetime) -> DataFrame:
    known = add_last_state(read_lake(spark, lake, "message"), read_lake(spark, lake, "history"))
    ours = (f.col("tenant") == TENANT) & (f.col("scope") == rule.scope)
    chosen = known.filter(ours & (f.col("created_at") >= f.lit(since)))
    if rule.on is not Trigger.PUBLISHED:
        chosen = chosen.filter(f.col("state") == rule.on.value)
    if rule.on is Trigger.CANCELLED:
        chosen = chosen.filter(~f.coalesce(f.col("reason"), f.lit("")).isin(MOVED, REPLACED))
    return chosen.select(*COLUMNS)


def judge_row(rule: CompiledRule, row: Row) -> str | None:
    """Returns the verdict, or None if the rule does not concern the queue and type of a message."""
    if not rule.concerns(row.queue, row.type):
        return None
    if rule.condition is None:
        return "matched"
    facts = get_engine().bind(make_row_values(rule, row), rule.stored.rule.on)
    try:
        return "matched" if rule.condition.test(facts) else "no_match"
    except FieldMissing:
        return "missing_field"
    except EvaluationError:
        return "error"


def make_row_values(rule: CompiledRule, row: Row) -> dict[str, Any]:
    scope = Scope(0, TENANT, rule.stored.rule.scope)
    body = bytes(row.body or b"")
    draft = Draft(
        queue=row.queue,
        type=row.type,
        priority=row.priority,
        body=body,
        content_type=row.content_type or "",
        name=row.name,
        headers=dict(row.headers or {}),
        labels=dict(row.labels or {}),
        ordering_key=row.ordering_key,
        correlation_id=row.correlation_id,
    )
    values = make_values(draft, Queue(0, scope, row.queue), rule.reads)
    if rule.stored.rule.on is not Trigger.PUBLISHED:
        values |= {
            "message.id": row.id,
            "message.state": row.state,
            "message.reason": row.reason or "",
            "message.error": row.error or "",
            "message.attempts": row.attempts or 0,
            "message.deliveries": row.deliveries or 0,
        }
    return values
