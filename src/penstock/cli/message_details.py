"""Describes and prints one message with its timeline."""

from collections.abc import Sequence
from typing import Any

from penstock.cli.lookup import summarize
from penstock.cli.output import (
    cut,
    decode_body,
    escape_control,
    format_ago,
    format_body,
    format_clock,
    format_duration,
    format_time,
    print_details,
    print_table,
)
from penstock.model.message import HistoryRow, Moment, Record, State
from penstock.model.queue import Queue
from penstock.model.waiting import StepRecord
from penstock.rules import human_steps
from penstock.rules.backoff import compute_limits

# --json prints whole bodies.
MAX_BODY_SHOWN = 2_000
STEP_COLUMNS = ("step", "key", "kind", "state", "stored (utc)", "due (utc)", "result")


def describe_message(record: Record, queue: Queue, result: bytes | None) -> dict[str, Any]:
    meta = record.message.meta
    limits = compute_limits(meta, queue.settings, None)
    return summarize(record, queue.name) | {
        "queue_state": queue.serving_state.value,
        "max_attempts": limits[0],
        "max_deliveries": limits[1],
        "timeout": meta.timeout,
        "lease": meta.lease or queue.settings.lease,
        "blocked_by": None if record.blocked_by is None else str(record.blocked_by),
        "dedup_key": meta.dedup,
        "body": decode_body(record.message.body),
        "result": decode_body(result),
        "run_at": format_time(record.run_at),
        "expires_at": format_time(record.expires_at),
        "lease_until": format_time(record.lease_until),
        "cancel_requested": record.cancel_requested,
        "redrives": record.redrives,
        "correlation_id": meta.correlation_id,
        "ordering_key": meta.ordering_key,
        "parent_id": None if meta.parent_id is None else str(meta.parent_id),
        "path": list(meta.path) or None,
        "callback": meta.callback,
        "publisher": meta.publisher,
        "headers": meta.headers or {},
        "labels": meta.labels or {},
        "timeline": [describe_event(row) for row in record.timeline],
    }


def describe_event(row: HistoryRow) -> dict[str, Any]:
    return {
        "at": format_time(row.at),
        "verb": row.verb.value,
        "state": row.state.value,
        "attempts": row.attempts,
        "deliveries": row.deliveries,
        "claimed_at": format_time(row.claimed_at),
        "due_at": format_time(row.due_at),
        "consumer": row.consumer,
        "reason": row.reason,
        "error": row.error,
        "traceback": row.traceback,
    }


def print_record(
    record: Record, queue: Queue, result: bytes | None, now: Moment, output: str | None
) -> None:
    print_details([*list_details(record, queue, now), *list_content(record, result, output)])
    print_timeline(record)


def print_timeline(record: Record) -> None:
    if record.timeline:
        print()
        columns = ("time (utc)", "event", "state", "attempt", "took", "error")
        print_table(columns, [make_timeline_row(each) for each in record.timeline], "")
    print_traceback(record.timeline)


def list_details(record: Record, queue: Queue, now: Moment) -> list[tuple[str, Any]]:
    shown = summarize(record, queue.name)
    meta = record.message.meta
    lease = meta.lease or queue.settings.lease
    max_attempts, max_deliveries = compute_limits(meta, queue.settings, None)
    return [
        ("id", shown["id"]),
        ("name", shown["name"]),
        ("queue", queue.name),
        ("type", record.message.type),
        ("state", " ".join(filter(None, (shown["state"], describe_state(record, queue, now))))),
        ("attempts", f"{record.attempts} of {max_attempts}"),
        ("deliveries", f"{record.deliveries} of {max_deliveries}"),
        ("lease", None if record.state.final else f"{lease:g}s"),
        ("timeout", None if meta.timeout is None else f"{meta.timeout:g}s"),
        ("priority", shown["priority"] or None),
        (
            "created",
            f"{format_clock(record.message.created_at)} UTC, {format_age(record, now)} ago",
        ),
        ("publisher", meta.publisher),
        ("expires", format_clock(record.expires_at)),
        ("correlation", meta.correlation_id),
        ("key", meta.ordering_key),
        ("dedup key", meta.dedup),
        ("parent", meta.parent_id),
        ("rules", ", ".join(meta.path) or None),
        ("labels", format_pairs(meta.labels)),
        ("headers", format_pairs(meta.headers)),
        ("callback", meta.callback),
    ]


def list_content(record: Record, result: bytes | None, output: str | None) -> list[tuple[str, Any]]:
    return [
        ("progress", format_progress(record)),
        ("redrives", record.redrives or None),
        ("body", cut(format_body(record.message.body) or "", MAX_BODY_SHOWN)),
        ("result", cut(format_body(result) or "", MAX_BODY_SHOWN)),
        ("output", output),
        ("error", record.error),
    ]


def print_traceback(timeline: Sequence[HistoryRow]) -> None:
    """Print the last traceback. --json prints all of them."""
    for row in reversed(timeline):
        if row.traceback is not None:
            print(f"\ntraceback of attempt {row.attempts}, {format_clock(row.at)} UTC")
            print("\n".join(f"  {escape_control(line)}" for line in row.traceback.splitlines()))
            return


def format_pairs(pairs: dict[str, str] | None) -> str | None:
    return "\n".join(f"{name}={value}" for name, value in pairs.items()) if pairs else None


def describe_state(record: Record, queue: Queue, now: Moment) -> str | None:
    match record.state:
        case State.SCHEDULED:
            parked = f"{record.reason}, " if record.reason and not record.error else ""
            return f"({parked}due {format_due(record, now)})"
        case State.READY if not queue.serves:
            return f"(queue is {queue.serving_state.value})"
        case State.CLAIMED:
            asked = "; cancellation requested" if record.cancel_requested else ""
            word = "prefetched" if record.begun_at is None else "running"
            since = f"{word} for {format_held(record, now)} by {record.consumer}"
            return f"({since}, lease ends {format_ago(record.lease_until, now)}{asked})"
    return f"({record.reason})" if record.reason else None


def make_timeline_row(row: HistoryRow) -> Sequence[Any]:
    took = None if row.claimed_at is None else f"{(row.at - row.claimed_at) / 1_000_000:.1f}s"
    return (format_clock(row.at), row.verb.value, row.state.value, row.attempts, took,
            row.error or row.reason)  # fmt: skip


def format_held(record: Record, now: Moment) -> str | None:
    """Format how long a worker has run the message, or held it if it has not started."""
    return format_ago(record.begun_at or record.claimed_at, now)


def format_due(record: Record, now: Moment) -> str:
    """Format when a message is due, or what it waits for without a time."""
    if record.due_at is not None:
        return format_ago(record.due_at, now) or ""
    if record.blocked_by is not None:
        return f"after {record.blocked_by}"
    kind, _, what = (record.reason or "").partition(":")
    if kind == "signal":
        return f"on signal {what}"
    if record.message.type == human_steps.TYPE:
        return "when decided"
    others = kind == "after" or record.message.meta.ordering_key is None
    return "after other messages" if others else "after its key is free"


def format_age(record: Record, now: Moment) -> str:
    return format_duration(max(0, now - record.message.created_at) / 1_000_000)


def format_progress(record: Record) -> str | None:
    if record.percent is None and record.note is None:
        return None
    percent = "" if record.percent is None else f"{record.percent:.0f} %"
    return " ".join(filter(None, (percent, record.note)))


def print_steps(steps: Sequence[StepRecord]) -> None:
    print_table(STEP_COLUMNS, map(make_step_row, steps), "no steps")


def describe_step(step: StepRecord) -> dict[str, Any]:
    return {
        "step": step.name,
        "key": step.key.removeprefix("k:"),
        "kind": step.kind,
        "done": step.done,
        "at": format_time(step.at),
        "due_at": format_time(step.due_at),
        "result": decode_body(step.body or None),
    }


def make_step_row(step: StepRecord) -> tuple[Any, ...]:
    done = "done" if step.done else "waits"
    times = (format_clock(step.at), format_clock(step.due_at))
    key = step.key.removeprefix("k:")
    return (step.name, key, step.kind, done, *times, format_body(step.body or None))
