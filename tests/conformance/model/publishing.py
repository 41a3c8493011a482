"""The model's publish: who is let in, and where a message stands at first."""

from dataclasses import dataclass

import msgspec

from penstock.errors import (
    Forbidden,
    IdempotencyConflict,
    NameTaken,
    QueueArchived,
    QueueDraining,
    QueueFull,
    QueuePaused,
    ScopePaused,
)
from penstock.model.message import Draft, Moment, State, Verb
from penstock.model.queue import QueueState
from tests.conformance.model import rules
from tests.conformance.model.items import Item, moment_after
from tests.conformance.model.ledger import Ledger


@dataclass(frozen=True)
class Verdict:
    """Refused with a code, or the same as a message that exists, or let in."""

    code: str | None = None
    duplicate_of: int | None = None


class Publishing(Ledger):
    def barred(self, draft: Draft) -> str | None:
        """The code with which the queue or the scope refuses everything now."""
        queue = self.queues[draft.queue]
        if queue.name.startswith("_"):
            return Forbidden.code
        if queue.state is QueueState.DRAINING:
            return QueueDraining.code
        if queue.state is QueueState.ARCHIVED:
            return QueueArchived.code
        if queue.state is QueueState.PAUSED and not queue.settings.pause_accepts:
            return QueuePaused.code
        if self.scope_paused and not queue.settings.pause_accepts:
            return ScopePaused.code
        return None

    def judge(self, draft: Draft) -> Verdict:
        seen = self.seen(draft)
        unique = draft.dedup is not None and draft.dedup.window is None
        if seen is not None and not unique and seen.draft.body != draft.body:
            return Verdict(IdempotencyConflict.code)
        if seen is not None:
            return Verdict(duplicate_of=seen.id)
        if draft.name is not None and (draft.queue, draft.name) in self.names:
            return Verdict(NameTaken.code)
        if self.full(draft.queue) and self.queues[draft.queue].settings.overflow == "reject":
            return Verdict(QueueFull.code)
        return Verdict()

    def seen(self, draft: Draft) -> Item | None:
        """The message that has this draft's dedup key."""
        if draft.dedup is None:
            return None
        key = (draft.queue, draft.dedup.key)
        if draft.dedup.window is None:
            unfinished = self.uniques.get(key)
            return None if unfinished is None else self.items[unfinished]
        id, until = self.windows.get(key, (0, 0))
        return self.items[id] if until > self.now else None

    def full(self, queue: str, coming: int = 1) -> bool:
        most = self.queues[queue].settings.max_depth
        depth = len(self.at("ready", queue)) + len(self.at("scheduled", queue))
        return most is not None and depth + coming > most

    def enter(self, draft: Draft, id: int, *, never_refused: bool = False) -> Item:
        """A draft that was let in, under the id the store gave it."""
        item = self.written(draft, id)
        overflows = self.full(draft.queue) and not never_refused
        self.items[id] = item
        self.remember(item)
        if overflows:
            self.overflow(item)
        elif item.due_at > self.now:
            self.put(item, "scheduled")
        elif item.key is not None:
            self.get_in_line(item, (id, 0))
        else:
            self.put(item, "ready")
        return item

    def enter_ended(self, draft: Draft, id: int, reason: str) -> None:
        """A draft that ends when it is published, such as a broadcast."""
        item = self.items[id] = self.written(draft, id)
        self.write(item, Verb.PUBLISH, State.COMPLETED, reason=reason)
        self.put(item, None)

    def written(self, draft: Draft, id: int) -> Item:
        queue = self.queues[draft.queue]
        due_at = max(self.now, draft.run_at or moment_after(self.now, draft.delay))
        ends = [draft.expires_at, draft.deadline, self.ttl_ends(draft)]
        expires_at = min((end for end in ends if end is not None), default=None)
        rank = rules.rank(draft, queue.settings, self.now, due_at)
        run_at = due_at if due_at > self.now else None
        return Item(id, queue, draft, self.now, due_at, expires_at, rank, run_at)

    def ttl_ends(self, draft: Draft) -> Moment | None:
        return None if draft.ttl is None else moment_after(self.now, draft.ttl)

    def remember(self, item: Item) -> None:
        """Its name and its dedup key."""
        draft, queue = item.draft, item.queue.name
        if draft.name is not None:
            self.names[queue, draft.name] = item.id
        if draft.dedup is None:
            return
        if draft.dedup.window is None:
            self.uniques[queue, draft.dedup.key] = item.id
        else:
            until = moment_after(self.now, draft.dedup.window)
            self.windows[queue, draft.dedup.key] = (item.id, until)

    def overflow(self, item: Item) -> None:
        item.dead_at, item.dead_reason = (self.now, item.id), "overflow"
        self.write(item, Verb.PUBLISH, State.DEAD, reason="overflow")
        self.put(item, "dead")
        self.free(item)

    def copy_of(self, item: Item, body: bytes) -> Draft:
        """A redriven message that is a new one: no name, no dedup key, no times, a parent."""
        return msgspec.structs.replace(
            item.draft,
            body=body,
            delay=0.0,
            run_at=None,
            ttl=None,
            expires_at=None,
            deadline=None,
            dedup=None,
            name=None,
            parent_id=item.id,
        )

    def successor_of(self, item: Item, body: bytes) -> Draft:
        """A replaced message: its times are those of the old one, its dedup key is not."""
        return msgspec.structs.replace(
            item.draft,
            body=body,
            delay=0.0,
            run_at=item.due_at if item.place == "scheduled" and item.turn is None else None,
            ttl=None,
            expires_at=item.expires_at,
            dedup=None,
            parent_id=item.id,
        )
