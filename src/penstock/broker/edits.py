"""Applies a single operation on a stored message: replace, reprioritise."""

from penstock.broker.queue_cache import QueueCache
from penstock.errors import Busy, InvalidState, NameTaken
from penstock.model.changes import AWAITED, Change, Item, ItemAnswer
from penstock.model.message import Record
from penstock.model.queue import Queue
from penstock.model.store_types import Answer, AnswerKind, Published
from penstock.retry_policies import DEAD_LETTER
from penstock.rules.items import make_replacement, make_successor
from penstock.store import Store


async def replace_message(
    store: Store,
    directory: QueueCache,
    record: Record,
    target: Queue,
    reason: str,
    body: bytes | None = None,
) -> Published:
    """Ends a message and publishes its successor in one step."""
    draft = make_successor(record, target, body)
    item = make_replacement(record, draft, target, reason)
    directory.check_schemas(draft, target)
    answer = await apply_item(store, item, record)
    return Published(answer.id or 0)


async def apply_item(store: Store, item: Item, record: Record) -> ItemAnswer:
    """Applies one item. Waits a moment for a ticket that another transaction has locked."""
    retries = DEAD_LETTER.begin()
    while True:
        changed = await store.advance(Change(items=(item,)))
        assert changed is not None, "a change without guards is always written"
        (answer,) = changed.items
        if answer.kind is not AnswerKind.BUSY or not await retries.again():
            return raise_unless_applied(answer, record)


def raise_unless_applied(answer: ItemAnswer, record: Record) -> ItemAnswer:
    id = record.message.id
    match answer.kind:
        case AnswerKind.DONE | AnswerKind.ALREADY:
            return answer
        case AnswerKind.CHANGED:
            raise InvalidState(f"message {id} has changed since it was read; read it again")
        case AnswerKind.BUSY:
            raise Busy(f"message {id} is locked by another transaction; try again")
    if answer.code == AWAITED:
        raise InvalidState(
            f"message {id} waits for others, is awaited by others or has stored steps; it cannot be"
            " replaced by a message with another id"
        )
    if answer.code is not None:
        raise NameTaken(f"the queue already has a message named {record.message.meta.name!r}")
    state = answer.state or "gone"
    raise InvalidState(f"message {id} is {state}, which does not allow this operation")


def raise_unless_settled(answer: Answer, record: Record) -> Answer:
    if answer.kind is AnswerKind.DONE:
        return answer
    if answer.kind is AnswerKind.BUSY:
        raise Busy(f"message {record.message.id} is locked by another transaction; try again")
    state = answer.state or record.state
    raise InvalidState(
        f"message {record.message.id} is {state}, which does not allow this operation"
    )
