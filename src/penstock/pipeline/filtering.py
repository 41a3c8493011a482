"""Selects messages of the lake by a filter, with the matcher that searches of a store use."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType

from penstock.errors import FieldNotHere
from penstock.model.filter import All, Candidate, Node, Op, Pattern, Term
from penstock.model.message import FINAL, NEVER, Moment, State
from penstock.rules.filter_match import FAILED_STATES, find_bounds, list_fields, matches, may_match
from penstock.rules.filter_parser import parse_filter

# Fields that the lake does not have for a message.
MISSING = ("due", "wait", "rule")
COLUMNS = (
    "id", "queue", "scope", "type", "name", "ordering_key", "correlation_id", "causation_id",
    "parent_id", "consumer", "reason", "error", "priority", "attempts", "deliveries", "state",
    "labels", "headers", "body",
)  # fmt: skip
MOMENTS = ("created_at", "ended_at", "expires_at")
# Fields whose columns have the same name, and which Spark can compare before it reads bodies.
PUSHED = ("queue", "type")


def filter_messages(rows: DataFrame, filter: str, now: Moment) -> DataFrame:
    """Keeps the messages that match. Spark reads only what can match."""
    node = parse_filter(filter, now)
    for term in list_fields(node):
        if term.field in MISSING:
            raise FieldNotHere(f"the lake has no field {term.field!r} to filter by")
    for condition in push_down(node):
        rows = rows.filter(condition)
    moments = [f.unix_micros(f.col(name)).alias(name) for name in MOMENTS]
    fits = f.udf(lambda row: matches(node, make_candidate(row)), BooleanType())
    return rows.filter(fits(f.struct(*COLUMNS, *moments)))


def push_down(node: Node) -> Iterator[Column]:
    """Yields conditions that every matching message meets, by state, time, id, queue and type."""
    states = [state.value for state in State if may_match(node, Candidate(state=state), ("state",))]
    yield f.col("state").isin(*states)
    bounds = find_bounds(node)
    created = f.unix_micros(f.col("created_at"))
    if bounds.created_since > 0:
        yield created >= bounds.created_since
    if bounds.created_until < NEVER:
        yield created <= bounds.created_until
    if bounds.ids is not None:
        yield f.col("id").isin(*bounds.ids)
    for term in node.nodes if isinstance(node, All) else (node,):
        if isinstance(term, Term) and term.field in PUSHED and term.op is Op.IS:
            texts = [value.literal for value in term.values if isinstance(value, Pattern)]
            if None not in texts:
                yield f.col(term.field).isin(*texts)


def make_candidate(row: Row) -> Candidate:
    found: dict[str, Any] = row.asDict()
    state = State(found["state"])
    return Candidate(
        state=state,
        queue=found["queue"],
        scope=found["scope"],
        type=found["type"],
        id=found["id"],
        name=found["name"],
        key=found["ordering_key"],
        correlation=found["correlation_id"],
        causation=found["causation_id"],
        parent=found["parent_id"],
        consumer=found["consumer"],
        reason=found["reason"],
        error=found["error"],
        priority=found["priority"],
        attempts=found["attempts"],
        deliveries=found["deliveries"],
        created=found["created_at"],
        ended=found["ended_at"] if state in FINAL else None,
        failed=found["ended_at"] if state in FAILED_STATES else None,
        expires=found["expires_at"],
        labels=found["labels"],
        headers=found["headers"],
        body=bytes(found["body"]),
        size=len(found["body"]),
    )
