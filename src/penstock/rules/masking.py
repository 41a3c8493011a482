"""Masks fields of messages for callers without the right `reveal`.

A queue names the fields in its setting `mask`, such as `body.card` or `headers.authorization`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import FieldMasked
from penstock.model.filter import Node, Term
from penstock.model.message import Draft, HistoryRow, Record
from penstock.model.queue import Queue
from penstock.rules.globs import match_glob

MASKED = "***"
MASKED_JSON = msgspec.json.encode(MASKED)
# Fields of a filter by the root of a mask.
FILTER_FIELDS = {
    "body": ("body",),
    "headers": ("header",),
    "labels": ("label",),
    "error": ("error", "error.kind", "fingerprint"),
    "result": (),
}
Reveals = Callable[[str, str], bool]
# What a condition reads: a field, and its path up to a call or a computed index.
STEP = re.compile(r"""\.[A-Za-z_]\w*(?!\w*\s*\()|\["[^"\\]*"\]|\['[^'\\]*'\]|\[\d+\]""")
READ = re.compile(rf"\b(body|headers|labels|error)\b((?:{STEP.pattern})*)")


class MaskedRecord(Struct, frozen=True):
    """A record as a caller may see it, and which entries of the mask changed it."""

    record: Record
    masked: tuple[str, ...] = ()


class MaskedDraft(Struct, frozen=True):
    """A draft as a caller may see it, and whether the mask changed it."""

    draft: Draft
    changed: bool


def split_mask(entry: str) -> tuple[str, tuple[str, ...]]:
    """Splits `body.a.b` into its root and path. Names of headers and labels may have dots."""
    root, _, rest = entry.partition(".")
    if not rest:
        return root, ()
    return root, (rest,) if root in ("headers", "labels") else tuple(rest.split("."))


def check_filter(node: Node, queues: Iterable[Queue], reveals: Reveals) -> None:
    """Raises FieldMasked if the filter tests a masked field of a queue.

    Otherwise a caller could find out a masked value by searching for it.
    """
    from penstock.rules.filter_match import list_fields

    terms = list(list_fields(node))
    for queue in queues:
        for entry in list_hidden(queue, reveals):
            for term in terms:
                if is_masked(term, entry):
                    raise FieldMasked(
                        f"{describe_field(term)} is masked in queue {queue.name!r}; searching it"
                        " needs the right 'reveal'; exclude the queue with"
                        f" -queue:{queue.name}"
                    )


def list_hidden(queue: Queue, reveals: Reveals) -> tuple[str, ...]:
    """Returns the mask of a queue, or nothing for a caller who may see everything."""
    mask = queue.settings.mask
    return mask if mask and not reveals(queue.scope.name, queue.name) else ()


def check_move(source: Queue, target: Queue, reveals: Reveals) -> None:
    """Raises FieldMasked if a move to the other queue would uncover masked fields."""
    uncovered = set(list_hidden(source, reveals)) - set(target.settings.mask)
    if uncovered:
        raise FieldMasked(
            f"queue {source.name!r} masks {', '.join(sorted(uncovered))}, and queue"
            f" {target.name!r} does not; moving its messages there needs the right 'reveal'"
        )


def describe_field(term: Term) -> str:
    return ".".join((term.field, *term.path))


def is_masked(term: Term, entry: str) -> bool:
    """True for the masked field itself, its parents, its children, and globs over it."""
    root, path = split_mask(entry)
    if term.field not in FILTER_FIELDS[root]:
        return False
    if root in ("headers", "labels"):
        return match_glob(".".join(term.path), path[0])
    return overlap(drop_indices(term.path), drop_indices(path))


def overlap(asked: Sequence[str], masked: Sequence[str]) -> bool:
    return all(match_glob(*pair) for pair in zip(asked, masked, strict=False))


def drop_indices(path: Iterable[str]) -> list[str]:
    """Lists are searched element by element, so indexes are ignored."""
    return [name for name in path if not name.isdecimal()]


def mask_record(record: Record, mask: Sequence[str]) -> MaskedRecord:
    """Replaces masked values by `***`. A body that is not JSON is masked as a whole."""
    if not mask:
        return MaskedRecord(record)
    found = record
    masked = []
    for entry in mask:
        changed = mask_entry(found, *split_mask(entry))
        if changed != found:
            masked.append(entry)
        found = changed
    return MaskedRecord(found, tuple(masked))


def mask_entry(record: Record, root: str, path: tuple[str, ...]) -> Record:
    message = record.message
    match root:
        case "body":
            body = mask_json(message.body, path)
            return replace(record, message=replace(message, body=body))
        case "headers" | "labels":
            values = mask_name(getattr(message.meta, root), path[0])
            meta = replace(message.meta, **{root: values})
            return replace(record, message=replace(message, meta=meta))
        case "error":
            return mask_errors(record)
    return record


def mask_draft(draft: Draft, mask: Sequence[str]) -> MaskedDraft:
    """Replaces masked values of a message that is to be published."""
    found = draft
    for entry in mask:
        root, path = split_mask(entry)
        match root:
            case "body":
                found = replace(found, body=mask_json(found.body, path))
            case "headers" | "labels":
                values = mask_name(getattr(found, root), path[0])
                found = replace(found, **{root: values})
    return MaskedDraft(found, found != draft)


def check_draft_unmasked(draft: Draft, queue: Queue, reveals: Reveals) -> None:
    """Raises FieldMasked if a caller would store the mask in place of a value it cannot see."""
    values = {*(draft.headers or {}).values(), *(draft.labels or {}).values()}
    if list_hidden(queue, reveals) and (MASKED_JSON in draft.body or MASKED in values):
        raise FieldMasked(
            f"the message has the masked value {MASKED} of queue {queue.name!r}; saving it would"
            " lose the real one; pause and resume the schedule without its message"
        )


def mask_json(body: bytes, path: tuple[str, ...]) -> bytes:
    if not body:
        return body
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return MASKED_JSON
    masked = mask_value(value, tuple(drop_indices(path)))
    return body if masked == value else msgspec.json.encode(masked)


def mask_value(value: Any, path: tuple[str, ...]) -> Any:
    if not path:
        return MASKED
    match value:
        case list():
            return [mask_value(each, path) if is_nested(each) else each for each in value]
        case dict() if path[0] in value:
            return value | {path[0]: mask_value(value[path[0]], path[1:])}
    return value


def is_nested(value: object) -> bool:
    return isinstance(value, dict | list)


def mask_name(values: dict[str, str] | None, name: str) -> dict[str, str] | None:
    return values | {name: MASKED} if values and name in values else values


def mask_errors(record: Record) -> Record:
    return replace(
        record,
        error=record.error and MASKED,
        timeline=tuple(mask_row(row) for row in record.timeline),
    )


def mask_row(row: HistoryRow) -> HistoryRow:
    return replace(row, error=row.error and MASKED, traceback=row.traceback and MASKED)


def mask_result(result: bytes, mask: Sequence[str]) -> bytes:
    for entry in mask:
        root, path = split_mask(entry)
        if root == "result":
            result = mask_json(result, path)
    return result


def check_unmasked(queue: Queue, root: str, action: str, reveals: Reveals) -> None:
    """Raises FieldMasked before an action that overwrites or tests values the caller cannot see."""
    for entry in list_hidden(queue, reveals):
        if split_mask(entry)[0] == root:
            raise FieldMasked(
                f"{entry} is masked in queue {queue.name!r}; {action} needs the right 'reveal'"
            )


def check_condition(condition: str, queues: Iterable[Queue], reveals: Reveals) -> None:
    """Raises FieldMasked if the condition of a rule reads a masked field of a queue.

    A field whose path is not written out, such as `message.body[key]`, counts as read as a whole.
    """
    read = [(found[1], split_steps(found[2])) for found in READ.finditer(condition)]
    for queue in queues:
        for entry in list_hidden(queue, reveals):
            root, masked = split_mask(entry)
            for field, path in read:
                if field == root and overlap(path, drop_indices(masked)):
                    raise FieldMasked(
                        f"the condition reads {entry}, which is masked in queue {queue.name!r};"
                        " testing it needs the right 'reveal'"
                    )


def split_steps(path: str) -> list[str]:
    return drop_indices(step.strip(".[]'\"") for step in STEP.findall(path))


def check_new_mask(queue: Queue, mask: Iterable[str], reveals: Reveals) -> None:
    """Raises FieldMasked if a caller would uncover a field without the right to see it."""
    if lifted := set(list_hidden(queue, reveals)) - set(mask):
        raise FieldMasked(
            f"{', '.join(sorted(lifted))} is masked in queue {queue.name!r}; lifting the mask needs"
            " the right 'reveal'"
        )
