"""Operating on the store and on the model: cancel, redrive, purge, switches and settings."""

from collections.abc import Sequence
from typing import Any

from penstock.errors import InvalidInput, InvalidState, NotFound
from penstock.model.message import State
from penstock.model.queue import QueueState
from penstock.model.settings import change
from penstock.model.store_types import AnswerKind, Published
from tests.conformance.machine.world import World


class Operators(World):
    def cancel(self, id: int, *, force: bool) -> None:
        answer = self.answer(self.broker.admin.cancel(id, force=force))
        assert answer.kind == self.model.cancel(id, force=force)

    def redrive_in_place(self, batch: list[int]) -> None:
        answers = self.run(self.store.redrive(batch))
        assert [answer.kind for answer in answers] == [self.model.redrive(id) for id in batch]

    def purge_dead(self, batch: list[int]) -> None:
        answers = self.run(self.store.purge_dead(batch))
        assert [answer.kind for answer in answers] == [self.model.purge_dead(id) for id in batch]

    def redrive(self, id: int, body: bytes | None) -> None:
        """In place, or as a new message, by what the old one is and whether it is edited."""
        place = self.model.items[id].place if id in self.model.items else "nowhere"
        published = self.attempt(self.broker.admin.redrive(id, body=body))
        if place == "dead" and body is not None and self.model.involved(self.model.items[id]):
            assert isinstance(published, InvalidState)
            return
        if place not in ("dead", None):
            assert isinstance(published, NotFound if place == "nowhere" else InvalidState)
            return
        assert isinstance(published, Published), f"redrive of {id}: {published!r}"
        assert published.code is None, "redrives are never refused"
        if place == "dead" and body is None:
            assert published.id == id
            assert self.model.redrive(id) is AnswerKind.DONE
        else:
            self.model.redrive_as_new(id, body, published.id)

    def edit(self, id: int, body: bytes) -> None:
        place = self.model.items[id].place if id in self.model.items else "nowhere"
        published = self.attempt(self.broker.admin.edit(id, body))
        if place in ("ready", "scheduled", "dead") and self.model.involved(self.model.items[id]):
            assert isinstance(published, InvalidState)
            return
        if place not in ("ready", "scheduled", "dead"):
            assert isinstance(published, NotFound if place == "nowhere" else InvalidState)
            return
        assert isinstance(published, Published), f"edit of {id}: {published!r}"
        self.model.edit(id, body, published.id)

    def rerank(self, id: int, priority: int) -> None:
        item = self.model.items.get(id)
        refusal = self.attempt(self.broker.admin.reprioritise(id, priority))
        if item is None or item.queue.settings.ordering != "priority":
            assert isinstance(refusal, NotFound if item is None else InvalidInput)
        elif item.place not in ("ready", "scheduled"):
            assert isinstance(refusal, InvalidState)
        else:
            assert refusal is None
            self.model.rerank(id, priority)

    def purge(self, queue: str, places: Sequence[str], limit: int) -> None:
        """Up to `limit` of them; which ones is the store's affair."""
        purgeable = self.model.purgeable(queue, places)
        count = self.run(self.broker.admin.purge(queue, *places, limit=limit))
        ended = [item for item in purgeable if self.state_of(item) is State.CANCELLED]
        assert count == len(ended) == min(limit, len(purgeable))
        self.model.purge(ended)

    def switch(self, queue: str, state: QueueState) -> None:
        self.run(self.broker.admin.set_state(queue, state))
        self.model.queues[queue].state = state

    def pause_scope(self, *, paused: bool) -> None:
        self.run(self.broker.admin.pause_scope("default", paused=paused))
        self.model.scope_paused = paused

    def set_queue(self, queue: str, changes: dict[str, Any]) -> None:
        line = self.model.queues[queue]
        line.settings = change(line.settings, changes)
        changed = self.run(self.broker.admin.set_queue(queue, **changes))
        assert changed.settings == line.settings
