"""Builds the packet that publishes plain entries."""

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.model.message import NEVER
from penstock.model.store_types import Entry, Published
from penstock.stores.mariadb.statement import RawSql, fill_statement, to_literal

NOW = "@now"
# Bytes of bodies in a packet; as hexadecimal they are twice as long.
ONE_PACKET = 4_000_000


def make_statements(entries: Sequence[Entry]) -> list[str]:
    """Returns the statements; the first yields the id of the first message."""
    more = len(entries) - 1
    rows = RawSql(",\n".join(map(make_row, entries)))
    texts = [fill_statement("publish", rows=rows)]
    if any(entry.run_at is not None or entry.delay for entry in entries):
        return [
            *texts,
            fill_statement("publish_ready", more=more),
            fill_statement("publish_scheduled", more=more),
        ]
    if more:
        return [*texts, fill_statement("publish_ready", more=more)]
    return [*texts, fill_statement("publish_one", **make_ticket(entries[0]))]


def make_ticket(entry: Entry) -> dict[str, Any]:
    ends = expires_at_sql(entry)
    return {
        "queue_id": entry.queue_id,
        "rank": RawSql(rank_sql(entry, None)),
        "type": entry.type,
        "expires_at": NEVER if ends == "NULL" else RawSql(ends),
    }


def make_row(entry: Entry) -> str:
    due = due_at_sql(entry)
    values = (
        str(entry.queue_id), to_literal(entry.type), str(entry.priority), rank_sql(entry, due), NOW,
        "NULL" if due is None else f"if({due} > {NOW}, {due}, NULL)", expires_at_sql(entry),
        to_literal(entry.body), to_literal(entry.meta),
    )  # fmt: skip
    return f"({', '.join(values)})"


def due_at_sql(entry: Entry) -> str | None:
    """Returns the due time as SQL; None means at once."""
    if entry.run_at is not None:
        return str(entry.run_at)
    return f"{NOW} + {int(entry.delay * 1_000_000)}" if entry.delay else None


def rank_sql(entry: Entry, due: str | None) -> str:
    match entry.basis:
        case "zero":
            return str(entry.rank)
        case "created":
            return f"{entry.rank} + {NOW} DIV 1000"
        case "due":
            later = NOW if due is None else f"greatest({due}, {NOW})"
            return f"{entry.rank} + ({later}) DIV 1000"


def expires_at_sql(entry: Entry) -> str:
    if entry.ttl is None:
        return to_literal(entry.expires_at)
    ends = f"{NOW} + {int(entry.ttl * 1_000_000)}"
    return ends if entry.expires_at is None else f"least({entry.expires_at}, {ends})"


def make_published(first: int, count: int) -> list[Published]:
    """Builds the outcomes: ids are consecutive, in the order of the entries."""
    return [Published(id) for id in range(first, first + count)]


def split_into_packets(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Splits entries so that each part fits into a packet, if a single message does."""
    start = length = 0
    for end, entry in enumerate(entries):
        length += len(entry.body)
        if start < end and length > ONE_PACKET:
            yield entries[start:end]
            start, length = end, len(entry.body)
    yield entries[start:]
