"""Operations on messages: get, find, cancel, redrive, move, edit, reprioritise, purge."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.broker.audit import note_changes
from penstock.broker.liveness import is_gone
from penstock.broker.queues import PURGEABLE, QueueAdmin, check_allowed
from penstock.errors import Archived, Forbidden, InvalidInput, NotFound, PenstockError
from penstock.model.fields import MAX_BATCH, MAX_WORD_LENGTH
from penstock.model.message import NEVER, Moment, Record, State
from penstock.model.queue import CALLBACK, DEAD_LETTER, Queue
from penstock.model.store_types import Answer, Pruned, Published, Query, Retention, WorkerInfo
from penstock.rules import drafts, validation
from penstock.rules.callbacks import make_correlation_id
from penstock.rules.masking import check_move, check_unmasked, list_hidden, mask_record

if TYPE_CHECKING:
    from penstock.broker.search import SearchResult
    from penstock.model.explain import Cause
    from penstock.model.waiting import CancelledTree


class Admin(QueueAdmin):
    async def get(self, reference: int | str, *, scope: str = "default") -> Record:
        """Returns a message by id or by `queue/name`."""
        return await self._get_own(await self._resolve(reference, scope))

    async def result(self, reference: int | str, *, scope: str = "default") -> bytes | None:
        id = await self._resolve(reference, scope)
        await self._get_own(id)
        return await self.store.result(id)

    async def _resolve(self, reference: int | str, scope: str) -> int:
        if isinstance(reference, str) and "/" in reference:
            return await self._resolve_name(reference, scope)
        number = reference if isinstance(reference, int) else -1
        if isinstance(reference, str) and reference.isascii() and reference.isdecimal():
            number = int(reference) if len(reference) < 20 else -1
        if not 0 <= number < 2**63:
            raise InvalidInput(f"{validation.clip(reference)} is neither an id nor queue/name")
        return number

    async def _resolve_name(self, reference: str, scope: str) -> int:
        queue_name, _, name = reference.partition("/")
        queue = await self.queue(queue_name, scope=scope)
        validation.check_text("name", name, MAX_WORD_LENGTH)
        found = await self.store.named(queue.id, name)
        if found is None:
            raise NotFound(f"no message named {name!r} in queue {queue_name!r}")
        return found

    async def _get_own(self, id: int) -> Record:
        """Loads a message of this tenant. Those of other tenants are not found."""
        try:
            record = await self.store.get(id)
        except Archived:
            from penstock.broker.archive import explain_archived

            raise await explain_archived(self.store, id, local=self.allows is None) from None
        if record is not None:
            queue = await self.directory.get_by_id(record.message.queue_id)
            if queue.scope.tenant == self.tenant:
                check_allowed(self, queue.scope.name, queue.name)
                return record
        raise NotFound(f"no message with id {id}")

    async def explain(self, reference: int | str, *, scope: str = "default") -> "list[Cause]":
        """Explains why a message does not run or has not finished, the main cause first."""
        from penstock.model.explain import ExplainSnapshot
        from penstock.rules.explain import explain

        record, queue = await self._get_visible(reference, scope)
        diagnosis = await self.store.diagnose(record.message.id, queue.id)
        now = await self.store.now()
        waits = record.state is State.SCHEDULED
        holds = await self.store.holds([record.message.id]) if waits else []
        edges = await self.store.edges(record.message.id) if holds else []
        workers = await self._list_serving(queue, now)
        return explain(
            ExplainSnapshot(
                record=record,
                queue=queue,
                now=now,
                diagnosis=diagnosis,
                workers=workers,
                worked_at=0 if workers else await self._find_worked_at(queue),
                agents=await self.store.agent_runs(),
                holder_state=await self._find_holder_state(record.blocked_by),
                holds=holds,
                open_edges=sum(edge.state is None for edge in edges),
            )
        )

    async def _get_visible(self, reference: int | str, scope: str) -> tuple[Record, Queue]:
        """Returns a message as the caller may see it, and its queue."""
        record = await self.get(reference, scope=scope)
        queue = await self.directory.get_by_id(record.message.queue_id)
        return mask_record(record, list_hidden(queue, self.reveals)).record, queue

    async def _list_serving(self, queue: Queue, now: Moment) -> list[WorkerInfo]:
        """Returns the live workers that serve the queue."""
        rows = await self.store.workers()
        return [row for row in rows if row.serves(queue) and not is_gone(row, now)]

    async def _find_worked_at(self, queue: Queue) -> Moment:
        """Returns when work on the queue last ended, as far as the historian has read."""
        from penstock.broker.metrics.rows import QueueTotals, read_state

        state, _ = await read_state(self.store)
        return state.totals.get(queue.id, QueueTotals()).worked_at

    async def _find_holder_state(self, holder: int | None) -> State | None:
        """Returns None for a message that is gone or that the caller may not read."""
        try:
            return None if holder is None else (await self._get_own(holder)).state
        except (NotFound, Forbidden):
            return None

    async def callbacks(self, reference: int | str, *, scope: str = "default") -> list[Record]:
        """Lists the callbacks of a message, newest first."""
        story = make_correlation_id((await self.get(reference, scope=scope)).message.id)
        queue = await self.directory.get_by_name("default", "default", CALLBACK)
        return await self.store.find(Query((queue.id,), correlation_id=story))

    async def find(
        self,
        queue: str | None = None,
        *,
        state: State | None = None,
        type: str | None = None,
        correlation_id: str | None = None,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        scope: str = "default",
    ) -> list[Record]:
        """Lists messages, newest first, or with `after` oldest first."""
        validation.check_number("limit", limit, 1, MAX_BATCH, whole=True, needed=True)
        validation.check_number("before", before, 0, 2**63 - 1, whole=True)
        validation.check_number("after", after, 0, 2**63 - 1, whole=True)
        for field, text in (("type", type), ("correlation_id", correlation_id)):
            if text is not None:
                validation.check_text(field, text, MAX_WORD_LENGTH)
        if queue == DEAD_LETTER:
            if state not in (None, State.DEAD):
                raise InvalidInput(f"messages of queue {queue!r} are dead, not {state}")
            await self.queue(queue, scope=scope)
            queue, state = None, State.DEAD
        if queue is None:
            queues = await self.queues(scope=scope)
        else:
            queues = [await self.queue(queue, scope=scope)]
        ids = tuple(queue.id for queue in queues)
        if not ids:
            return []
        query = Query(
            queue_ids=ids, state=state, type=type, correlation_id=correlation_id,
            before=before, limit=limit, after=after,
        )  # fmt: skip
        return await self.store.find(query)

    async def search(
        self, filter: str, *, cursor: str | None = None, limit: int = 50, scope: str = "default"
    ) -> "SearchResult":
        """Finds messages that match a filter such as `state:dead error:timeout`.

        A page may have fewer messages than `limit`. The search is over when it has no cursor.
        """
        from penstock.broker.search import search_messages

        validation.check_number("limit", limit, 1, MAX_BATCH, whole=True, needed=True)
        queues = await self.queues(scope=scope)
        return await search_messages(self.store, filter, queues, cursor, limit, self.reveals)

    async def cancel(
        self, reference: int | str, *, force: bool = False, scope: str = "default"
    ) -> Answer:
        """Cancels a message. A claimed one is asked to stop, or with `force` loses its lease."""
        from penstock.broker.cancel import cancel_message

        return await cancel_message(self, await self.get(reference, scope=scope), force=force)

    async def delete_queue(self, name: str, *, force: bool = False, scope: str = "default") -> None:
        """Deletes a queue without unfinished messages or subscriptions. `force` ends them."""
        queue = await self.queue(name, scope=scope)
        if queue.settings.kind == "broadcast":
            from penstock.broker.broadcast.subscriptions import Broadcasts

            await Broadcasts(self).delete_all(queue, force=force)
        await super().delete_queue(name, force=force, scope=scope)

    async def cancel_tree(
        self, reference: int | str, *, force: bool = False, scope: str = "default"
    ) -> "CancelledTree":
        """Cancels a message and the unfinished messages that its steps published, and theirs."""
        from penstock.broker.cancel import TreeCanceller

        record = await self.get(reference, scope=scope)
        note_changes({"state": record.state}, {"state": State.CANCELLED})
        return await TreeCanceller(self).cancel(record, force=force)

    async def redrive(
        self, reference: int | str, *, body: bytes | None = None, scope: str = "default"
    ) -> Published:
        """Makes a dead message ready again. A finished or edited one is published as a copy."""
        from penstock.broker.redrive import redrive_message

        return await redrive_message(self, await self.get(reference, scope=scope), body)

    async def edit(self, reference: int | str, body: bytes, *, scope: str = "default") -> Published:
        """Replaces a ready, scheduled or dead message by one with another body.

        The old one ends as cancelled with the reason `replaced`. Due time, priority, headers,
        labels, callback and name go over, and so does its turn in the line of its ordering key.
        """
        from penstock.broker.edits import replace_message
        from penstock.rules.items import REPLACED

        record = await self.get(reference, scope=scope)
        queue = await self.directory.get_by_id(record.message.queue_id)
        check_unmasked(queue, "body", "replacing the body", self.reveals)
        note_changes({"body": record.message.body}, {"body": body})
        return await replace_message(self.store, self.directory, record, queue, REPLACED, body)

    async def move(
        self,
        reference: int | str,
        queue: str,
        *,
        to_scope: str | None = None,
        scope: str = "default",
    ) -> Published:
        """Moves a ready, scheduled or dead message to another queue, where it gets a new id.

        The old one ends as cancelled with the reason `moved`.
        """
        from penstock.broker.edits import replace_message
        from penstock.rules.items import MOVED

        record = await self.get(reference, scope=scope)
        home = await self.directory.get_by_id(record.message.queue_id)
        target = await self._open_target(queue, to_scope or home.scope.name)
        check_move(home, target, self.reveals)
        note_changes({"queue": home.name}, {"queue": target.name})
        return await replace_message(self.store, self.directory, record, target, MOVED)

    async def _open_target(self, name: str, scope: str) -> Queue:
        """Returns a queue that messages can be moved to."""
        target = await self.directory.get(self.tenant, scope, name)
        if (refusal := drafts.explain_refusal(target)) is not None:
            raise refusal
        return target

    async def reprioritise(
        self, reference: int | str, priority: int, *, scope: str = "default"
    ) -> None:
        """Moves a ready or scheduled message in its queue, as if it had this priority.

        It lasts through retries. The message itself keeps the priority it was published with.
        """
        from penstock.broker.edits import apply_item
        from penstock.rules.items import make_rerank

        record = await self.get(reference, scope=scope)
        queue = await self.directory.get_by_id(record.message.queue_id)
        note_changes({"priority": record.message.priority}, {"priority": priority})
        await apply_item(self.store, make_rerank(record, queue.settings, priority), record)

    async def redrive_many(self, ids: Sequence[int]) -> list[Answer | PenstockError]:
        from penstock.broker.redrive import redrive_messages

        return await redrive_messages(self, ids)

    async def purge(
        self, name: str, *places: str, limit: int = 1_000, scope: str = "default"
    ) -> int:
        """Ends up to `limit` messages in these places as cancelled, and returns how many."""
        if wrong := set(places) - set(PURGEABLE):
            raise InvalidInput(f"cannot purge {', '.join(wrong)}; expected {', '.join(PURGEABLE)}")
        validation.check_number("limit", limit, 0, 1_000_000, whole=True, needed=True)
        queue = await self.queue(name, scope=scope)
        return await self.store.purge(queue.id, places, limit)

    async def prune(
        self, name: str, *, before: Moment | None = None, limit: int = 1_000, scope: str = "default"
    ) -> Pruned:
        """Deletes up to `limit` finished messages that ended before a time, the oldest first.

        The agents do the same when the retention of the queue is over. Messages that an export
        has not read yet are kept.
        """
        validation.check_number("before", before, 0, NEVER, whole=True)
        validation.check_number("limit", limit, 1, 1_000_000, whole=True, needed=True)
        queue, now = await self.queue(name, scope=scope), await self.store.now()
        until = now if before is None else min(before, now)
        count, pruned = 0, Pruned(0, 0, True)
        while pruned.more and count < limit:
            left = Retention((queue.id,), until, pruned.position, max_messages=limit - count)
            pruned = await self.store.prune(left)
            count += pruned.count
        return Pruned(count, pruned.position, pruned.more)

    async def purge_dead(self, reference: int | str, *, scope: str = "default") -> Answer:
        """Ends one dead letter as cancelled."""
        from penstock.broker.edits import raise_unless_settled

        record = await self.get(reference, scope=scope)
        note_changes({"state": record.state}, {"state": State.CANCELLED})
        (answer,) = await self.store.purge_dead((record.message.id,))
        return raise_unless_settled(answer, record)
