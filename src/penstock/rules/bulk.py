"""Decides bulk actions: which messages belong to one, what happens to each, and when it ends."""

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import InvalidInput, PenstockError
from penstock.model.bulk import (
    BulkAction,
    BulkCounts,
    BulkFailure,
    BulkRequest,
    BulkState,
    BulkVerb,
)
from penstock.model.changes import Horizon, Item, ItemAnswer, ItemVerb
from penstock.model.fields import MAX_WORD_LENGTH
from penstock.model.message import Record, State
from penstock.model.queue import Queue
from penstock.model.store_types import AnswerKind
from penstock.rules import validation
from penstock.rules.items import (
    MOVED,
    REPLACEABLE,
    WAITING,
    make_copy,
    make_item,
    make_replacement,
    make_rerank,
    make_successor,
)

MAX_IDS = 10_000
MIN_BATCH = 5
MAX_BATCH = 250
# A batch holds a lock that all writers share. It works under the lock for about as long as its
# commit takes, within these bounds: a shorter batch would only commit more often.
MIN_HELD_S, MAX_HELD_S = 0.002, 0.01
# After a batch, others may write for as long as it held them up.
MAX_REST_S = 0.02
MAX_FAILURES = 100
MAX_BUSY = 1_000
# Passes in which messages stay locked before they count as failed.
MAX_PASSES = 20
CHANGED = "changed since"
ALREADY = "nothing to do"
MISSING = "not found"
UNDERWAY = frozenset({BulkState.COUNTING, BulkState.RUNNING})


class Skip(Struct, frozen=True):
    """Leaves a message alone. Without a reason it is not counted."""

    reason: str | None = None


class ItemRefusal(Struct, frozen=True):
    code: str


Decision = Item | Skip | ItemRefusal


def check_horizon(as_of: Horizon, newest: Horizon) -> None:
    """Raises InvalidInput for a moment that has not been yet."""
    if as_of.now > newest.now or as_of.message > newest.message or as_of.history > newest.history:
        raise InvalidInput("as_of is later than the store; take that of a dry run")


def check_request(request: BulkRequest) -> None:
    """Raises InvalidInput unless the request has what its verb needs, and nothing else."""
    if request.filter is None and request.ids is None:
        raise InvalidInput("select messages by a filter or by ids")
    if request.filter is not None and request.ids is not None:
        raise InvalidInput("give a filter or ids, not both")
    if request.filter is not None and not request.filter.strip():
        raise InvalidInput("the filter is empty; select messages by a term, such as state:dead")
    if request.ids is not None:
        check_ids(request.ids)
    check_verb_fields(request)
    validation.check_number("rate", request.rate, 0.01, 1_000_000)
    if request.name is not None:
        validation.check_text("name", request.name, MAX_WORD_LENGTH)


def check_verb_fields(request: BulkRequest) -> None:
    if request.verb is BulkVerb.MOVE and request.queue is None:
        raise InvalidInput("verb 'move' needs the queue to move to")
    if request.verb is BulkVerb.REPRIORITISE and request.priority is None:
        raise InvalidInput("verb 'reprioritise' needs a priority")
    for name, value, verb in (
        ("queue", request.queue, BulkVerb.MOVE),
        ("to_scope", request.to_scope, BulkVerb.MOVE),
        ("priority", request.priority, BulkVerb.REPRIORITISE),
    ):
        if value is not None and request.verb is not verb:
            raise InvalidInput(f"verb '{request.verb}' does not accept {name}; only '{verb}' does")


def check_ids(ids: Sequence[int]) -> None:
    if not 0 < len(ids) <= MAX_IDS:
        raise InvalidInput(f"{len(ids)} ids; expected 1 to {MAX_IDS}, or a filter")
    for id in ids:
        validation.check_number("id", id, 1, 2**63 - 1, whole=True, needed=True)


def decide(action: BulkAction, record: Record, queue: Queue, target: Queue | None) -> Decision:
    """Decides what the action does to a message, as it was read."""
    if is_own(action, record):
        return Skip()
    if not belongs(action, record):
        return Skip(CHANGED)
    try:
        decision = DECIDE[action.request.verb](action, record, queue, target)
    except PenstockError as error:
        return ItemRefusal(error.code)
    if not isinstance(decision, Item):
        return decision
    return replace(decision, by=action.mark, as_of=action.as_of.history)


def is_own(action: BulkAction, record: Record) -> bool:
    """True if the action itself wrote the last row of history."""
    if not record.timeline:
        return False
    last = record.timeline[-1]
    return action.mark in f"{last.reason or ''} {last.error or ''}".split()


def belongs(action: BulkAction, record: Record) -> bool:
    changed = bool(record.timeline) and record.timeline[-1].position > action.as_of.history
    return record.message.id <= action.as_of.message and not changed


def decide_redrive(
    action: BulkAction, record: Record, queue: Queue, target: Queue | None
) -> Decision:
    if record.state is State.DEAD:
        return make_item(ItemVerb.REDRIVE, record)
    if record.state.final:
        return make_copy(record, queue, f"{action.mark}:{record.message.id}")
    return Skip(record.state.value)


def decide_cancel(
    action: BulkAction, record: Record, queue: Queue, target: Queue | None
) -> Decision:
    if record.state is State.CLAIMED and record.cancel_requested:
        return Skip(ALREADY)
    if record.state in WAITING or record.state is State.CLAIMED:
        return make_item(ItemVerb.CANCEL, record)
    return Skip(record.state.value)


def decide_purge(
    action: BulkAction, record: Record, queue: Queue, target: Queue | None
) -> Decision:
    if record.state in REPLACEABLE:
        return make_item(ItemVerb.PURGE, record)
    return Skip(record.state.value)


def decide_move(action: BulkAction, record: Record, queue: Queue, target: Queue | None) -> Decision:
    assert target is not None, "a move has a destination"
    if record.state not in REPLACEABLE:
        return Skip(record.state.value)
    if queue.id == target.id:
        return Skip(ALREADY)
    return make_replacement(record, make_successor(record, target), target, MOVED)


def decide_rerank(
    action: BulkAction, record: Record, queue: Queue, target: Queue | None
) -> Decision:
    if record.state not in WAITING:
        return Skip(record.state.value)
    if queue.settings.ordering != "priority":
        return Skip(f"ordering {queue.settings.ordering}")
    return make_rerank(record, queue.settings, action.request.priority or 0)


DECIDE = {
    BulkVerb.REDRIVE: decide_redrive,
    BulkVerb.CANCEL: decide_cancel,
    BulkVerb.PURGE: decide_purge,
    BulkVerb.MOVE: decide_move,
    BulkVerb.REPRIORITISE: decide_rerank,
}


def add_skips(action: BulkAction, decisions: Iterable[tuple[int, Decision]]) -> BulkAction:
    """Counts the messages that get no item."""
    for id, decision in decisions:
        if isinstance(decision, Skip) and decision.reason is not None and is_first(action, id):
            action = replace(action, counts=add_skip(action.counts, decision.reason))
        elif isinstance(decision, ItemRefusal) and is_first(action, id):
            action = replace(action, counts=add_failure(action.counts, id, decision.code))
    return action


def is_first(action: BulkAction, id: int) -> bool:
    """True if no earlier pass has counted the message."""
    return action.passes == 1 or id in action.was_busy


def fit_batch(count: int, held: float, commit: float) -> int:
    """Returns the size of the next batch.

    `count` messages held all other writers up for `held` seconds, and their commit took `commit`.
    """
    fitting = min(max(MIN_HELD_S, commit), MAX_HELD_S)
    if count * fitting >= MAX_BATCH * held:
        return MAX_BATCH
    return max(MIN_BATCH, int(count * fitting / held))


def fold_answers(action: BulkAction, answers: Sequence[ItemAnswer]) -> BulkAction:
    """Counts the answers of the last batch."""
    batch, done = action.batch, sum(answer.kind is AnswerKind.DONE for answer in answers)
    counts = replace(action.counts, done=action.counts.done + done)
    action = replace(action, counts=counts, pass_done=action.pass_done + done, batch=())
    for id, answer in zip(batch, answers, strict=True):
        if answer.kind is not AnswerKind.DONE:
            action = fold_answer(action, id, answer)
    return action


def fold_answer(action: BulkAction, id: int, answer: ItemAnswer) -> BulkAction:
    counts = action.counts
    match answer.kind:
        case AnswerKind.BUSY:
            return replace(action, busy=(*action.busy, id)[:MAX_BUSY])
        case AnswerKind.ALREADY if action.request.verb is not BulkVerb.REPRIORITISE:
            # The same message was redriven before the process died.
            return action
    if not is_first(action, id):
        return action
    if answer.code is not None:
        return replace(action, counts=add_failure(counts, id, answer.code))
    reason = {AnswerKind.CHANGED: CHANGED, AnswerKind.ALREADY: ALREADY}.get(answer.kind)
    return replace(action, counts=add_skip(counts, reason or answer.state or "gone"))


def add_skip(counts: BulkCounts, reason: str) -> BulkCounts:
    number = counts.skipped.get(reason, 0) + 1
    return replace(counts, skipped={**counts.skipped, str(reason): number})


def add_failure(counts: BulkCounts, id: int, code: str) -> BulkCounts:
    failures = (*counts.failures, BulkFailure(id, code))[:MAX_FAILURES]
    return replace(counts, failed=counts.failed + 1, failures=failures)


def end_pass(action: BulkAction, *, stable: bool) -> BulkAction:
    """Ends the action, or begins another pass if one may find more.

    In a stable order nothing is missed. In others, messages that became ready or changed their
    rank meanwhile are found by the next pass.
    """
    again = bool(action.busy) or (action.pass_done > 0 and not stable)
    if action.state is BulkState.COUNTING or not again or action.passes >= MAX_PASSES:
        for id in action.busy:
            action = replace(action, counts=add_failure(action.counts, id, "BUSY"))
        return replace(action, state=BulkState.DONE, busy=(), was_busy=())
    return replace(
        action,
        passes=action.passes + 1,
        cursor=None,
        position=0,
        pass_over=False,
        pass_done=0,
        was_busy=action.busy,
        busy=(),
    )
