"""Validates drafts, and turns them into entries under their queue's settings."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal

import msgspec
from msgspec.structs import astuple, force_setattr, replace

from penstock.errors import (
    BodyTooLarge,
    Forbidden,
    InvalidInput,
    PenstockError,
    QueueArchived,
    QueueDraining,
    QueuePaused,
    ScopeArchived,
    ScopePaused,
)
from penstock.model.fields import (
    FIELDS,
    MAX_DELAY_S,
    MAX_META_BYTES,
    MAX_WORD_LENGTH,
    MIN_DURATION_S,
    Field,
    copy_message_fields,
)
from penstock.model.message import PLAIN, Dedup, Draft, Flag, Meta
from penstock.model.queue import Queue, QueueState
from penstock.model.settings import SHELL_TYPE, QueueSettings
from penstock.model.store_types import Dedupe, Entry
from penstock.model.uniform_batch import UniformBatch
from penstock.rules.callbacks import check_url
from penstock.rules.priority import clamp_priority, compute_rank
from penstock.rules.validation import check_moment, check_number, check_text, clip, is_word

# The settings of the queue bound the body and the priority; the queue is looked up by name.
BOUND_BY_QUEUE = {"queue", "body", "priority"}
CHECKED = tuple(
    (field, getattr(Draft(), name)) for name, field in FIELDS.items() if name not in BOUND_BY_QUEUE
)

# Most drafts set only publisher, queue, type, priority and body, which are the last fields.
COMMON_FIELDS = 5
RARE_DEFAULTS = astuple(Draft())[:-COMMON_FIELDS]
KEY = Draft.__struct_fields__.index("ordering_key")

encode_meta = msgspec.json.Encoder().encode


def explain_refusal(queue: Queue) -> PenstockError | None:
    """Returns the error if the queue accepts no messages now, or None."""
    if queue.state is QueueState.ACTIVE and not queue.scope.paused and not queue.system:
        return None
    if queue.system:
        return Forbidden(
            f"queue {queue.name!r} is a system queue; messages cannot be published to it"
        )
    if queue.state is QueueState.DRAINING:
        return QueueDraining(f"queue {queue.name!r} is draining")
    if queue.state in (QueueState.ARCHIVED, QueueState.DELETED):
        return QueueArchived(f"queue {queue.name!r} is archived")
    if queue.scope.archived:
        return ScopeArchived(f"scope {queue.scope.name!r} is archived")
    return None if queue.settings.pause_accepts else explain_pause(queue)


def explain_pause(queue: Queue) -> PenstockError | None:
    if queue.state is QueueState.PAUSED:
        return QueuePaused(f"queue {queue.name!r} is paused")
    if queue.scope.paused:
        return ScopePaused(f"scope {queue.scope.name!r} is paused")
    return None


def check(draft: Draft, settings: QueueSettings) -> None:
    """Validates every field of a draft."""
    check_body(draft, settings)
    check_shell(draft, settings)
    check_priority(draft.priority, settings)
    if draft.publisher is not None:
        check_text("publisher", draft.publisher, MAX_WORD_LENGTH)
    for field, default in CHECKED:
        if (value := getattr(draft, field.name)) is not default:
            check_field(field, value)
    if draft.delay and draft.run_at is not None:
        raise InvalidInput("give delay or run_at, not both")


def is_common(draft: Draft, settings: QueueSettings) -> bool:
    """Checks the common fields quickly. Drafts that fail get the full check."""
    return (
        type(draft.body) is bytes
        and len(draft.body) <= settings.max_body
        and type(draft.type) is str
        and draft.type.isprintable()
        and draft.type.isascii()
        and 0 < len(draft.type) <= MAX_WORD_LENGTH
        and (settings.shell or draft.type != SHELL_TYPE)
        and type(draft.priority) is int
        and settings.priority_min <= draft.priority <= settings.priority_max
        and (draft.publisher is None or is_word(draft.publisher))
    )


def check_body(draft: Draft, settings: QueueSettings) -> None:
    if not isinstance(draft.body, bytes):
        raise InvalidInput(f"body is {type(draft.body).__name__}; it must be bytes")
    if len(draft.body) > settings.max_body:
        raise BodyTooLarge(
            f"body has {len(draft.body)} bytes; queue {draft.queue!r} accepts at most"
            f" {settings.max_body}"
        )


def check_shell(draft: Draft, settings: QueueSettings) -> None:
    """Refuses shell jobs on ordinary queues: the right to publish must not run commands."""
    if draft.type == SHELL_TYPE and not settings.shell:
        raise InvalidInput(
            f"queue {draft.queue!r} does not accept shell jobs; its setting shell is off"
        )


def check_field(field: Field, value: Any) -> None:
    match field.kind:
        case "text":
            check_text(field.name, value, MAX_WORD_LENGTH)
        case "texts":
            check_pairs(field, value)
        case "dedup":
            check_dedup(value)
        case "url":
            check_url(field.name, value)
        case "moment":
            check_moment(field.name, value, int(field.most))
        case _:
            whole = field.kind != "number"
            check_number(field.name, value, field.least, field.most, whole=whole, needed=True)


def check_pairs(field: Field, pairs: dict[str, str]) -> None:
    if not isinstance(pairs, dict):
        raise InvalidInput(f"{field.name} is {clip(pairs)}; it must be a mapping of strings")
    for key, value in pairs.items():
        check_text(f"{field.name} key", key, MAX_WORD_LENGTH)
        check_text(f"{field.name} {key}", value, int(field.most), least=0)


def check_dedup(dedup: Dedup) -> None:
    if not isinstance(dedup, Dedup):
        raise InvalidInput(f"dedup is {clip(dedup)}; it must be a Dedup with a key and a window")
    check_text("dedup key", dedup.key, MAX_WORD_LENGTH)
    check_number("dedup window", dedup.window, MIN_DURATION_S, MAX_DELAY_S)


def check_priority(priority: int, settings: QueueSettings) -> None:
    least, most = settings.priority_min, settings.priority_max
    if settings.clamp:
        least, most = -(2**63), 2**63 - 1
    check_number("priority", priority, least, most, whole=True, needed=True)


def make_common_entry(draft: Draft, queue: Queue) -> Entry | None:
    """Makes the entry of a common draft, or returns None if it needs the full check."""
    settings = queue.settings
    if settings.max_depth is not None or astuple(draft)[:-COMMON_FIELDS] != RARE_DEFAULTS:
        return None
    if not is_common(draft, settings):
        return None
    rank, basis = compute_rank(draft, settings)
    common = (queue.id, draft.type, draft.body, draft.priority, rank, basis)
    if draft.publisher is None:
        return Entry(*common)
    return Entry(*common, meta=encode_publisher(draft.publisher))


@lru_cache(1_000)
def encode_publisher(publisher: str) -> str:
    """Returns the metadata of a message that has only a publisher."""
    return encode_meta(Meta(publisher=publisher)).decode()


def make_uniform_batch(drafts: Sequence[Draft], queue: Queue) -> UniformBatch | None:
    """Makes the batch of common drafts that differ only in their bodies; otherwise None."""
    heading = make_common_entry(drafts[0], queue)
    if heading is None:
        return None
    most = queue.settings.max_body
    # A copy that takes the body of each draft is compared with it: half the cost of tuples.
    probe = replace(drafts[0])
    bodies: list[bytes] = []
    for draft in drafts:
        body = draft.body
        force_setattr(probe, "body", body)
        if draft != probe or type(body) is not bytes or len(body) > most:
            return None
        bodies.append(body)
    return UniformBatch(heading, bodies)


def make_common_entries(
    drafts: Sequence[Draft], queues: Mapping[str, Queue | PenstockError]
) -> list[Entry | None]:
    """Makes the entries of common drafts, also with ordering keys, and None for the others.

    Drafts of the same queue, type and priority share their checks.
    """
    headings: dict[tuple[object, ...], tuple[Entry, int] | None] = {}
    entries: list[Entry | None] = []
    for draft in drafts:
        fields = astuple(draft)
        publisher, queue, kind, priority, body = fields[-COMMON_FIELDS:]
        entry, rare, line = None, fields[:-COMMON_FIELDS], fields[KEY]
        if line is not None:
            rare = (*rare[:KEY], None, *rare[KEY + 1 :])
        # The class is part of the key, because True and 1.0 equal 1 but are no priorities.
        key = (publisher, queue, kind, priority, priority.__class__)
        if body.__class__ is bytes and rare == RARE_DEFAULTS:
            try:
                found = headings[key]
            except KeyError:
                found = headings[key] = make_common_heading(draft, queues.get(queue))
            except TypeError:
                # Not hashable: the full check refuses it.
                found = None
            if found is not None and len(body) <= found[1]:
                entry = make_alike(found[0], body, line, publisher)
        entries.append(entry)
    return entries


def make_alike(same: Entry, body: bytes, line: Any, publisher: str | None) -> Entry | None:
    """Makes an entry with this body and ordering key, or None if the key needs the full check."""
    common = (same.queue_id, same.type, body, same.priority, same.rank, same.basis)
    if line is None:
        return Entry(*common) if same.meta is None else Entry(*common, meta=same.meta)
    if not is_word(line):
        return None
    meta = encode_meta(Meta(ordering_key=line, publisher=publisher)).decode()
    return Entry(*common, flags=Flag.KEYED, meta=meta, ordering_key=line)


def make_common_heading(
    draft: Draft, queue: Queue | PenstockError | None
) -> tuple[Entry, int] | None:
    """Returns the entry of an empty draft with the same heading, and the longest body allowed."""
    if queue is None or isinstance(queue, PenstockError):
        return None
    entry = make_common_entry(replace(draft, body=b"", ordering_key=None), queue)
    return None if entry is None else (entry, queue.settings.max_body)


def check_and_make_entry(draft: Draft, queue: Queue) -> Entry:
    check(draft, queue.settings)
    return make_entry(draft, queue)


def make_entry(draft: Draft, queue: Queue) -> Entry:
    """Applies the queue's settings to a draft."""
    settings = queue.settings
    rank, basis = compute_rank(draft, settings)
    priority = clamp_priority(draft.priority, settings)
    meta = make_meta(draft, settings)
    # Positional, because seventeen keywords would take six times as long.
    return Entry(
        queue.id,
        draft.type,
        draft.body,
        priority,
        rank,
        basis,
        draft.delay,
        draft.run_at,
        draft.ttl,
        find_earliest(draft.expires_at, draft.deadline),
        compute_flags(draft, meta),
        encode_meta_text(meta),
        draft.name,
        draft.ordering_key,
        None if draft.dedup is None else make_dedupe(draft.dedup, draft.body, settings.dedup_by),
        settings.max_depth,
        settings.overflow,
    )


def compute_flags(draft: Draft, meta: Meta) -> int:
    unique = draft.dedup is not None and draft.dedup.window is None
    return (
        Flag.KEYED * (draft.ordering_key is not None)
        | Flag.UNIQUE * unique
        | Flag.OWN_LEASE * (meta.lease is not None)
        | Flag.CALLBACK * (meta.callback is not None)
        # A later message may wait for it by name.
        | Flag.AWAITED * (draft.name is not None)
    )


def make_meta(draft: Draft, settings: QueueSettings) -> Meta:
    fields = copy_message_fields(draft)
    fields["lease"] = compute_own_lease(draft, settings)
    meta = Meta(
        **fields,
        deadline=draft.deadline,
        dedup=None if draft.dedup is None else draft.dedup.key,
        parent_id=draft.parent_id,
        hops=draft.hops,
        callback=draft.callback,
        path=draft.path,
        fan=draft.fan,
        publisher=draft.publisher,
    )
    return PLAIN if meta == PLAIN else meta


def encode_meta_text(meta: Meta) -> str | None:
    if meta is PLAIN:
        return None
    text = encode_meta(meta)
    if len(text) > MAX_META_BYTES:
        raise InvalidInput(
            f"headers and labels take {len(text)} bytes; at most {MAX_META_BYTES} are allowed"
        )
    return text.decode()


def compute_own_lease(draft: Draft, settings: QueueSettings) -> float | None:
    """Returns the lease of the message, long enough for a run with its timeout.

    Only Penstock workers run shell jobs, and they extend their leases.
    """
    covered = settings.shell and draft.type != SHELL_TYPE
    if covered and draft.lease is None and draft.timeout is not None:
        return max(settings.lease, draft.timeout + 60)
    return draft.lease


def make_dedupe(dedup: Dedup, body: bytes, compared: Literal["body", "key"] = "body") -> Dedupe:
    """A unique key identifies one unfinished message, regardless of its body."""
    namespace = "unique" if dedup.window is None else "window"
    by_body = dedup.window is not None and compared == "body"
    digest = blake2b(body if by_body else b"", digest_size=16).digest()
    return Dedupe(f"{namespace}:{dedup.key}", digest, dedup.window)


def find_earliest(*moments: int | None) -> int | None:
    return min((moment for moment in moments if moment is not None), default=None)
