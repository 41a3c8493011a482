"""Redrives messages: a dead one is ready again, a finished or edited one is published as a copy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.broker.audit import note_changes
from penstock.broker.edits import raise_unless_settled
from penstock.errors import InvalidState, PenstockError
from penstock.model.message import Record, State
from penstock.model.store_types import Answer, AnswerKind, Published
from penstock.rules.items import copy_of, make_accepted_entry
from penstock.rules.masking import check_unmasked

if TYPE_CHECKING:
    from penstock.broker.messages import Admin


async def redrive_message(admin: "Admin", record: Record, body: bytes | None) -> Published:
    message, edited = record.message, body is not None
    if record.state is State.DEAD and not edited:
        note_changes({"state": State.DEAD}, {"state": State.READY})
        (answer,) = await admin.store.redrive((message.id,))
        raise_unless_settled(answer, record)
        return Published(message.id)
    if not record.state.final and record.state is not State.DEAD:
        raise InvalidState(
            f"message {message.id} is {record.state}; only dead or finished ones can be redriven"
        )
    if record.state is State.DEAD:
        return await admin.edit(message.id, message.body if body is None else body)
    queue = await admin.directory.get_by_id(message.queue_id)
    if edited:
        check_unmasked(queue, "body", "replacing the body", admin.reveals)
    draft = copy_of(message, queue.name, message.body if body is None else body)
    entry = make_accepted_entry(draft, queue)
    if edited:
        admin.directory.check_schemas(draft, queue)
    (published,) = await admin.store.enqueue((entry,))
    return published


async def redrive_messages(admin: "Admin", ids: Sequence[int]) -> list[Answer | PenstockError]:
    outcomes: list[Answer | PenstockError] = []
    for id in ids:
        try:
            await admin.redrive(id)
            outcomes.append(Answer(AnswerKind.DONE))
        except PenstockError as error:
            outcomes.append(error)
    return outcomes
