"""Validates drafts, and turns them into entries under their queue's settings."""

from collections.abc import Sequence
from hashlib import blake2b

import msgspec
from msgspec.structs import astuple, replace

from penstock.errors import (
    BodyTooLarge,
    Forbidden,
    InvalidInput,
    PenstockError,
    QueueArchived,
    QueueDraining,
    QueuePaused,
    ScopePaused,
)
from penstock.model.message import (
    NEVER,
    PLAIN,
    Dedup,
    Draft,
    Fail,
    Flag,
    Meta,
    Nack,
    Settlement,
    SettleReject,
)
from penstock.model.queue import Queue, QueueState
from penstock.model.settings import SHELL_TYPE, QueueSettings
from penstock.model.store_types import Dedupe, Entry, UniformBatch
from penstock.rules.callbacks import check_url
from penstock.rules.lifecycle import clamp_priority, compute_rank
from penstock.rules.validation import (
    check_number,
    check_text,
    clip,
    clip_traceback,
    replace_surrogates,
)

MAX_LENGTHS = {
    "type": 200,
    "name": 200,
    "ordering_key": 200,
    "correlation_id": 200,
    "causation_id": 200,
    "traceparent": 200,
    "content_type": 200,
}
MAX_META_BYTES = 65_536
MAX_DELAY_S = 10 * 366 * 86_400.0

# Most drafts set only the first four fields: queue, type, body and priority.
BODY_INDEX, COMMON_FIELDS = 2, 4
RARE_DEFAULTS = astuple(Draft())[COMMON_FIELDS:]

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
    if queue.settings.pause_accepts:
        return None
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
    check_texts(draft)
    check_times(draft)
    check_counts(draft)


def is_common(draft: Draft, settings: QueueSettings) -> bool:
    """Checks the common fields quickly. Drafts that fail get the full check."""
    return (
        type(draft.body) is bytes
        and len(draft.body) <= settings.max_body
        and type(draft.type) is str
        and draft.type.isprintable()
        and draft.type.isascii()
        and 0 < len(draft.type) <= MAX_LENGTHS["type"]
        and (settings.shell or draft.type != SHELL_TYPE)
        and type(draft.priority) is int
        and settings.priority_min <= draft.priority <= settings.priority_max
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


def check_texts(draft: Draft) -> None:
    for field, longest in MAX_LENGTHS.items():
        value = getattr(draft, field)
        if value is not None or field in ("type", "content_type"):
            check_text(field, value, longest)
    for field in ("headers", "labels"):
        if getattr(draft, field) is not None:
            check_pairs(field, getattr(draft, field))
    if draft.dedup is not None:
        check_dedup(draft.dedup)
    if draft.callback is not None:
        check_url("callback", draft.callback)


def check_pairs(field: str, pairs: dict[str, str]) -> None:
    if not isinstance(pairs, dict):
        raise InvalidInput(f"{field} is {clip(pairs)}; it must be a mapping of strings")
    for key, value in pairs.items():
        check_text(f"{field} key", key, 200)
        check_text(f"{field} {key}", value, 8_192, least=0)


def check_dedup(dedup: Dedup) -> None:
    if not isinstance(dedup, Dedup):
        raise InvalidInput(f"dedup is {clip(dedup)}; it must be a Dedup with a key and a window")
    check_text("dedup key", dedup.key, 200)
    check_number("dedup window", dedup.window, 0.001, MAX_DELAY_S)


def check_times(draft: Draft) -> None:
    check_number("delay", draft.delay, 0.0, MAX_DELAY_S, needed=True)
    for field, least, most in (
        ("ttl", 0.0, MAX_DELAY_S),
        ("lease", 0.1, 43_200.0),
        ("timeout", 0.001, MAX_DELAY_S),
    ):
        check_number(field, getattr(draft, field), least, most)
    for field in ("run_at", "expires_at", "deadline"):
        check_number(field, getattr(draft, field), 0, NEVER - 1, whole=True)
    if draft.delay and draft.run_at is not None:
        raise InvalidInput("give delay or run_at, not both")


def check_counts(draft: Draft) -> None:
    check_number("max_attempts", draft.max_attempts, 1, 32_767, whole=True)
    check_number("max_deliveries", draft.max_deliveries, 1, 32_767, whole=True)
    check_number("parent_id", draft.parent_id, 1, 2**63 - 1, whole=True)
    check_number("hops", draft.hops, 0, 1_000, whole=True, needed=True)


def check_priority(priority: int, settings: QueueSettings) -> None:
    least, most = settings.priority_min, settings.priority_max
    if settings.clamp:
        least, most = -(2**63), 2**63 - 1
    check_number("priority", priority, least, most, whole=True, needed=True)


def check_settlement(settlement: Settlement) -> Settlement:
    """Validates a settlement. Texts are clipped: a long error must not make the settle fail."""
    if isinstance(settlement, Nack):
        check_number("delay", settlement.delay, 0.0, MAX_DELAY_S)
        check_number("max_attempts", settlement.max_attempts, 1, 32_767, whole=True)
        check_number("max_total", settlement.max_total, 0.0, MAX_DELAY_S)
    texts = {field: getattr(settlement, field, None) for field in ("error", "reason")}
    given = {field: replace_surrogates(text) for field, text in texts.items() if text is not None}
    if isinstance(settlement, Nack | Fail | SettleReject) and settlement.traceback is not None:
        given["traceback"] = clip_traceback(str(settlement.traceback))
    return replace(settlement, **given) if given else settlement


def make_common_entry(draft: Draft, queue: Queue) -> Entry | None:
    """Makes the entry of a common draft, or returns None if it needs the full check."""
    settings = queue.settings
    if settings.max_depth is not None or astuple(draft)[COMMON_FIELDS:] != RARE_DEFAULTS:
        return None
    if not is_common(draft, settings):
        return None
    rank, basis = compute_rank(draft, settings)
    return Entry(queue.id, draft.type, draft.body, draft.priority, rank, basis)


def make_uniform_batch(drafts: Sequence[Draft], queue: Queue) -> UniformBatch | None:
    """Makes the batch of common drafts that differ only in their bodies; otherwise None."""
    heading = make_common_entry(drafts[0], queue)
    if heading is None:
        return None
    most = queue.settings.max_body
    fields = astuple(drafts[0])
    before, behind = fields[:BODY_INDEX], fields[BODY_INDEX + 1 :]
    bodies: list[bytes] = []
    for draft in drafts:
        fields = astuple(draft)
        body = fields[BODY_INDEX]
        if fields[BODY_INDEX + 1 :] != behind or fields[:BODY_INDEX] != before:
            return None
        if type(body) is not bytes or len(body) > most:
            return None
        bodies.append(body)
    return UniformBatch(heading, bodies)


def check_and_make_entry(draft: Draft, queue: Queue) -> Entry:
    check(draft, queue.settings)
    return make_entry(draft, queue)


def make_entry(draft: Draft, queue: Queue) -> Entry:
    """Applies the queue's settings to a draft."""
    settings = queue.settings
    rank, basis = compute_rank(draft, settings)
    priority = clamp_priority(draft.priority, settings)
    meta = make_meta(draft, settings)
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
        None if draft.dedup is None else make_dedupe(draft.dedup, draft.body),
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
    )


def make_meta(draft: Draft, settings: QueueSettings) -> Meta:
    meta = Meta(
        draft.name,
        draft.headers,
        draft.labels,
        draft.content_type,
        draft.deadline,
        own_lease(draft, settings),
        draft.timeout,
        draft.max_attempts,
        draft.max_deliveries,
        draft.ordering_key,
        None if draft.dedup is None else draft.dedup.key,
        draft.correlation_id,
        draft.causation_id,
        draft.parent_id,
        draft.traceparent,
        draft.hops,
        draft.callback,
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


def own_lease(draft: Draft, settings: QueueSettings) -> float | None:
    """Returns the lease of the message, long enough for a run with its timeout.

    Only Penstock workers run shell jobs, and they extend their leases.
    """
    covered = settings.shell and draft.type != SHELL_TYPE
    if covered and draft.lease is None and draft.timeout is not None:
        return max(settings.lease, draft.timeout + 60)
    return draft.lease


def make_dedupe(dedup: Dedup, body: bytes) -> Dedupe:
    namespace = "unique" if dedup.window is None else "window"
    digest = blake2b(body, digest_size=16).digest()
    return Dedupe(f"{namespace}:{dedup.key}", digest, dedup.window)


def find_earliest(*moments: int | None) -> int | None:
    return min((moment for moment in moments if moment is not None), default=None)
