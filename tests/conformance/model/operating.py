"""The model's operators: cancel, redrive, replace, purge, and the switches."""

from collections.abc import Collection

import msgspec

from penstock.model.message import State, Verb
from penstock.model.store_types import AnswerKind
from tests.conformance.model import rules
from tests.conformance.model.items import Item
from tests.conformance.model.publishing import Publishing


class Operating(Publishing):
    def cancel(self, id: int, *, force: bool) -> AnswerKind:
        item = self.items.get(id)
        if item is None:
            return AnswerKind.MISSING
        if item.place in ("ready", "scheduled"):
            self.end(item, Verb.CANCEL, State.CANCELLED, "requested")
        elif item.place == "lease" and force:
            self.end(item, Verb.CANCEL, State.CANCELLED, "forced")
        elif item.place == "lease":
            item.held().cancel_requested = True
            self.touched.add(id)
        else:
            return AnswerKind.INVALID
        return AnswerKind.DONE

    def not_dead(self, id: int) -> AnswerKind | None:
        item = self.items.get(id)
        if item is None:
            return AnswerKind.MISSING
        return None if item.place == "dead" else AnswerKind.INVALID

    def purge_dead(self, id: int) -> AnswerKind:
        if (refusal := self.not_dead(id)) is not None:
            return refusal
        self.purge([self.items[id]])
        return AnswerKind.DONE

    def redrive(self, id: int) -> AnswerKind:
        """A dead message is as new, in place; it stands last in its key's line."""
        if (refusal := self.not_dead(id)) is not None:
            return refusal
        item = self.items[id]
        item.attempts = item.deliveries = 0
        item.first_claimed_at = None
        keyed = item.key is not None
        item.parked = 0
        self.write(item, Verb.REDRIVE, State.SCHEDULED if keyed else State.READY)
        if not keyed:
            self.put(item, "ready")
        else:
            self.get_in_line(item, self.last_turn(item))
        return AnswerKind.DONE

    def redrive_as_new(self, id: int, body: bytes | None, new_id: int) -> None:
        """An ended one is published anew; an edited dead one is replaced."""
        item = self.items[id]
        if item.place == "dead":
            self.edit(id, body, new_id)
            return
        draft = self.copy_of(item, item.draft.body if body is None else body)
        self.enter(draft, new_id, never_refused=True)

    def edit(self, id: int, body: bytes | None, new_id: int) -> None:
        """Its successor takes its name, its times, and its turn in the line of its key."""
        item = self.items[id]
        place, turn, heads = item.place, item.turn, item.heads_key
        draft = self.successor_of(item, item.draft.body if body is None else body)
        item.heads_key = False
        self.end(item, Verb.CANCEL, State.CANCELLED, "replaced", f"by {new_id}")
        new = self.items[new_id] = self.written(draft, new_id)
        self.remember(new)
        later = new.due_at > self.now
        new.heads_key = heads
        # One that is not due yet comes into line when it is, where the first one would.
        new.line_id = item.line_id
        if heads or item.key is None or later or place == "dead":
            self.take_place(new, later)
        else:
            self.get_in_line(new, turn or (new.line_id, 0))

    def take_place(self, item: Item, later: bool) -> None:
        if later:
            self.put(item, "scheduled")
        elif item.key is not None and not item.heads_key:
            item.line_id = item.id
            self.get_in_line(item, (item.id, 0))
        else:
            self.put(item, "ready")

    def rerank(self, id: int, priority: int) -> None:
        item = self.items[id]
        draft = msgspec.structs.replace(item.draft, priority=priority)
        item.rank = rules.rank(draft, item.queue.settings, item.created_at, item.due_at)
        self.touched.add(id)

    def purgeable(self, queue: str, places: Collection[str]) -> list[Item]:
        return [item for place in places for item in self.at(place, queue)]

    def purge(self, items: list[Item]) -> None:
        for item in items:
            self.end(item, Verb.CANCEL, State.CANCELLED, "purged")
