"""The model's operators: cancel, redrive, replace, purge, and the switches."""

from collections.abc import Collection

from penstock.model.message import State, Verb
from penstock.model.store_types import AnswerKind
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
        self.write(item, Verb.REDRIVE, State.SCHEDULED if keyed else State.READY)
        if not keyed:
            self.put(item, "ready")
        else:
            self.get_in_line(item, self.last_turn(item))
        return AnswerKind.DONE

    def redrive_as_new(self, id: int, body: bytes | None, new_id: int) -> None:
        """An ended or edited one is published anew; a dead one ends in the same step."""
        item = self.items[id]
        if item.place == "dead":
            self.end(item, Verb.REDRIVE, State.CANCELLED, "replaced")
        draft = self.copy_of(item, item.draft.body if body is None else body)
        self.enter(draft, new_id, never_refused=True)

    def purgeable(self, queue: str, places: Collection[str]) -> list[Item]:
        return [item for place in places for item in self.at(place, queue)]

    def purge(self, items: list[Item]) -> None:
        for item in items:
            self.end(item, Verb.CANCEL, State.CANCELLED, "purged")
