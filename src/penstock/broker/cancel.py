"""Cancels a message, alone or together with all messages below it that its steps published."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.broker.audit import note_changes
from penstock.broker.edits import raise_unless_settled
from penstock.broker.queue_cache import QueueCache
from penstock.broker.queues import check_allowed
from penstock.errors import Busy, InvalidInput
from penstock.model.message import Record, State
from penstock.model.queue import HUMAN
from penstock.model.store_types import Answer, AnswerKind
from penstock.model.waiting import CancelledTree
from penstock.retry_policies import DEAD_LETTER
from penstock.rules.human_steps import make_abandoned
from penstock.rules.waiting import list_children
from penstock.store import Store

if TYPE_CHECKING:
    from penstock.broker.messages import Admin

MAX_TREE = 10_000
BATCH = 500


async def cancel_message(admin: "Admin", record: Record, *, force: bool) -> Answer:
    note_changes({"state": record.state}, {"state": State.CANCELLED})
    (answer,) = await admin.store.cancel((record.message.id,), force=force)
    raise_unless_settled(answer, record)
    if record.state is State.SCHEDULED:
        await end_human_steps(admin.store, admin.directory, [record.message.id])
    return answer


class TreeCanceller:
    """Cancels from the top, so that no message resumes when those it waits for end.

    Human steps end with the message that asked for them, whatever the rights of the caller.
    """

    def __init__(self, admin: "Admin") -> None:
        self.admin = admin
        self.store = admin.store
        self.human: set[int] = set()

    async def cancel(self, top: Record, *, force: bool) -> CancelledTree:
        """Raises InvalidState if neither the message nor one below it can be cancelled."""
        # Checks the rights on all queues before the first change.
        await self._list_open(top.message.id)
        (answer,) = await self._cancel([top.message.id], force)
        children = await self._cancel_below(top.message.id, force)
        if not children:
            raise_unless_settled(answer, top)
        return CancelledTree(answer.state or top.state, answer.cancel_requested, children)

    async def _cancel_below(self, top: int, force: bool) -> int:
        """Looks again after each change: a message may have published more in the meantime."""
        seen: set[int] = set()
        cancelled = 0
        while found := [id for id in await self._list_open(top) if id not in seen]:
            seen.update(found)
            for part in split(found):
                steps = [make_abandoned(id) for id in part if id in self.human]
                answers = await self.store.end_held(steps) if steps else []
                answers += await self._cancel([id for id in part if id not in self.human], force)
                cancelled += sum(answer.kind is AnswerKind.DONE for answer in answers)
        return cancelled

    async def _cancel(self, ids: Sequence[int], force: bool) -> list[Answer]:
        answers: dict[int, Answer] = {}
        left, retries = list(ids), DEAD_LETTER.begin()
        while left:
            answers |= zip(left, await self.store.cancel(left, force=force), strict=True)
            left = [id for id in left if answers[id].kind is AnswerKind.BUSY]
            if left and not await retries.again():
                raise Busy(f"message {left[0]} is locked by another transaction; try again")
        return [answers[id] for id in ids]

    async def _list_open(self, top: int) -> list[int]:
        """Lists the messages below one that can be cancelled, level by level."""
        seen, level, found = {top}, [top], list[int]()
        while level:
            children = await read_children(self.store, level)
            fresh = [each for each in children if each.message.id not in seen]
            level = [each.message.id for each in fresh]
            seen.update(level)
            if len(seen) > MAX_TREE:
                raise InvalidInput(
                    f"message {top} has more than {MAX_TREE:,} messages below it; cancel the trees"
                    " of its children, or use --filter"
                )
            found += [each.message.id for each in fresh if await self._may_cancel(each)]
        return found

    async def _may_cancel(self, record: Record) -> bool:
        """Returns False for ended and dead messages. Raises Forbidden."""
        if record.state.final or record.state is State.DEAD:
            return False
        queue = await self.admin.directory.get_by_id(record.message.queue_id)
        if queue.name == HUMAN:
            self.human.add(record.message.id)
        else:
            check_allowed(self.admin, queue.scope.name, queue.name)
        return True


async def read_children(store: Store, ids: Sequence[int]) -> list[Record]:
    """Reads the messages that steps of others published.

    A step may name any message: one that was published by another, or that a worker made up.
    """
    parents = set(ids)
    named = [id for part in split(ids) for step in await store.child_records(part)
             for id in list_children(step)]  # fmt: skip
    return [
        record
        for part in split(list(dict.fromkeys(named)))
        for record in await store.get_many(part)
        if record.message.meta.parent_id in parents
    ]


async def end_human_steps(store: Store, directory: QueueCache, ids: Sequence[int]) -> None:
    """Ends the open human steps of messages that were cancelled while they waited."""
    steps = []
    for record in await read_children(store, ids):
        queue = await directory.get_by_id(record.message.queue_id)
        if queue.name == HUMAN and not record.state.final:
            steps.append(make_abandoned(record.message.id))
    if steps:
        await store.end_held(steps)


def split(ids: Sequence[int]) -> list[Sequence[int]]:
    return [ids[first : first + BATCH] for first in range(0, len(ids), BATCH)]
