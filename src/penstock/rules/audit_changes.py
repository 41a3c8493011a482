"""Describes a change for the audit log: which fields, before and after, never a secret."""

from collections.abc import Iterator
from typing import Any

import msgspec

MAX_BYTES = 4_096
# Replaces values that are secret, or too long for an entry.
CHANGED = "changed"
# A body, a header or a callback URL may hold what only its publisher and its consumer may know.
SECRETS = frozenset({"body", "callback", "digest", "former", "headers", "key", "secret", "token"})
encode = msgspec.json.Encoder().encode


def describe_changes(before: Any, after: Any) -> str:
    """Returns the changed fields as JSON: `{"lease":[30,60],"backoff.max":[900,60]}`.

    A field that did not exist was null. Secret fields are `"changed"`.
    """
    old, new = dict(flatten(before)), dict(flatten(after))
    changes = {
        name: CHANGED if is_secret(name) else [old.get(name), new.get(name)]
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    }
    return encode_bounded(changes) if changes else ""


def flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every field with its dotted name."""
    plain = msgspec.to_builtins(value)
    if not isinstance(plain, dict):
        yield prefix, plain
        return
    for name, inner in plain.items():
        path = f"{prefix}.{name}" if prefix else str(name)
        if isinstance(inner, dict) and name not in SECRETS:
            yield from flatten(inner, path)
        else:
            yield path, inner


def is_secret(name: str) -> bool:
    return name.rpartition(".")[2] in SECRETS


def encode_bounded(changes: dict[str, Any]) -> str:
    """Leaves out the longest values, and then fields, until the text fits."""
    text = encode(changes)
    for name in sorted(changes, key=lambda each: -len(encode(changes[each]))):
        if len(text) <= MAX_BYTES:
            break
        changes = changes | {name: CHANGED}
        text = encode(changes)
    while len(text) > MAX_BYTES:
        kept = list(changes)[: len(changes) // 2]
        changes = {name: changes[name] for name in kept} | {"...": CHANGED}
        text = encode(changes)
    return text.decode()


def read_changes(detail: str) -> dict[str, Any] | None:
    """Returns the changes of an entry, or None if its detail is something else."""
    if not detail.startswith("{"):
        return None
    try:
        return msgspec.json.decode(detail, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def format_changes(detail: str) -> str:
    """Writes the changes of an entry for people: `lease 30 -> 60, body changed`."""
    changes = read_changes(detail)
    if changes is None:
        return detail
    return ", ".join(f"{name} {format_change(change)}" for name, change in changes.items())


def format_change(change: Any) -> str:
    if not isinstance(change, list) or len(change) != 2:
        return str(change)
    before, after = map(format_value, change)
    return after if change[0] is None else f"{before} -> {after}"


def format_value(value: Any) -> str:
    return value if isinstance(value, str) else encode(value).decode()
