"""Formats anomalies, durations and numbers for people."""

from typing import Any, TypeAlias

# A row of a result table, by column.
Row: TypeAlias = dict[str, Any]
ABSENT = "-"

SENTENCES = {
    "flash_message": "{count} completed in under {threshold_time}, median {value_time}",
    "large_payload": "{bodies} larger than {threshold_bytes}, up to {value_bytes}",
    "bulk_enqueue": "{messages} published in batches, up to {value_count} at once",
    "burst_dequeue": "{consumer} claimed {messages} within seconds",
    "long_processing": "{attempts} took longer than {threshold_time}, up to {value_time}",
    "lost_lease": "{leases} expired, held for up to {value_time}",
    "near_dlq": "one attempt left for {messages}",
    "zombie_message": "{attempts} ran long past the lease, by up to {value_time}",
    "dlq_movement": "{messages} moved to dead letters",
    "poison_message": "{failures} of messages that fail the same way on several consumers",
    "stuck_consumer": "{consumer} lost {leases} and completed nothing",
    "retry_storm": "{retries}, {value_share} of all attempts",
    "lock_stolen": "{settles} refused, because another consumer held the message by then",
    "bulk_delete": "{messages} deleted",
    "bulk_move": "{messages} moved to another queue",
    "queue_cleared": "all waiting messages were purged",
    "no_consumer": "work has waited for {value_time} and no consumer claims it",
    "unknown_task": "{messages} parked: no worker knows the type",
    "export_stalled": "the export {consumer} has made no progress for {value_time}",
    "feed_stalled": "a transaction has held back the history for {value_time}",
    "detector_failed": "the detector {consumer} failed three times and was disabled",
    "routing_loop": "rule {consumer} was stopped by the loop guard for {messages}",
    "rule_suspended": "rule {consumer} is suspended and no longer applied",
    "unusual_throughput": "{value_count} completed; usual at this hour: {threshold_count}",
    "unusual_failures": "{value_share} of attempts failed; usual at this hour: {threshold_share}",
    "unusual_wait": "95 % waited up to {value_time}; usual at this hour: {threshold_time}",
    "unusual_run": "95 % ran up to {value_time}; usual at this hour: {threshold_time}",
}
NOUNS = {
    "body": "bodies", "message": "messages", "attempt": "attempts", "lease": "leases",
    "failure": "failures", "retry": "retries", "settle": "settles",
}  # fmt: skip


def format_anomaly(anomaly: Row) -> str:
    value, usual = anomaly["value"] or 0.0, anomaly["threshold"] or 0.0
    # The kinds of an app's own detectors have no sentence.
    sentence = SENTENCES.get(anomaly["kind"], "{count} found")
    if anomaly["kind"] not in SENTENCES and anomaly.get("note"):
        return str(anomaly["note"])
    return sentence.format(
        count=format_number(anomaly["count"]),
        **{several: format_count(anomaly["count"], one, several) for one, several in NOUNS.items()},
        consumer=anomaly["consumer"],
        **{f"value_{name}": write(value) for name, write in FORMATTERS.items()},
        **{f"threshold_{name}": write(usual) for name, write in FORMATTERS.items()},
    )


def format_count(count: int, one: str, several: str) -> str:
    return f"1 {one}" if count == 1 else f"{format_number(count)} {several}"


def format_place(row: Row) -> str:
    """Returns "queue / type", or the queue if there is no type."""
    return " / ".join(filter(None, (row["queue"], shorten(row["type"] or ""))))


def shorten(text: str, most: int = 40) -> str:
    """Cuts the middle of a long text, because similar names often differ at the end."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end - 1]}…{text[-end:]}"


def format_seconds(seconds: float | None) -> str:
    """Formats like 480 ms, 1.2 s, 5.0 min or 3.2 h, short enough for an axis."""
    if seconds is None:
        return ABSENT
    if seconds < 0.001:
        return f"{seconds * 1_000_000:.0f} µs"
    if seconds < 1:
        return f"{format_short(seconds * 1_000)} ms"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{format_short(seconds / size)} {unit}"
    return f"{format_short(seconds)} s"


def format_short(value: float) -> str:
    """Formats with one decimal below ten, and none above."""
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def format_number(value: float | None) -> str:
    """Formats like 12,345 or 1.2 M."""
    if value is None:
        return ABSENT
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (100_000, "k")):
        if abs(value) >= size:
            return f"{value / (1_000 if unit == 'k' else size):.3g} {unit}"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 10 else f"{value:.2g}"


def format_share(part: float | None) -> str:
    if part is None:
        return ABSENT
    return f"{part * 100:.0f} %" if part >= 0.1 or part == 0 else f"{part * 100:.2g} %"


def format_bytes(count: float | None) -> str:
    for limit, unit in ((1_000_000, "MB"), (1_000, "kB")):
        if (count or 0) >= limit:
            return f"{(count or 0) / limit:.3g} {unit}"
    return f"{count or 0:.0f} bytes"


FORMATTERS = {
    "time": format_seconds,
    "count": format_number,
    "share": format_share,
    "bytes": format_bytes,
}
