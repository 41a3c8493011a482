"""One store and one model with the same queues, compared after every step."""

import asyncio
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec
from hypothesis.stateful import RuleBasedStateMachine, invariant

from penstock.broker.local import Broker
from penstock.errors import InvalidState, LockLost, NotFound, PenstockError
from penstock.model.message import NEVER, PLAIN, Flag, HistoryRow, Record, State, StoredMessage
from penstock.model.store_types import Answer, AnswerKind, Lease, Move, Query
from tests.conformance.engines import Engine
from tests.conformance.machine.queues import QUEUES
from tests.conformance.machine.wishes import Theme
from tests.conformance.model import Model
from tests.conformance.model.consuming import Sight
from tests.conformance.model.items import Hold, Item

T = TypeVar("T")
NO_MESSAGE = StoredMessage(0, 0, "", 0, 0, b"", PLAIN)
KINDS: dict[type[PenstockError], AnswerKind] = {
    LockLost: AnswerKind.LOST,
    InvalidState: AnswerKind.INVALID,
    NotFound: AnswerKind.MISSING,
}


class World(RuleBasedStateMachine):
    @abstractmethod
    def prepare(self) -> Engine:
        """An engine for one example, with nothing in it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.engine = self.prepare()
        self.store = self.run(self.engine.open())
        self.broker = Broker(self.store)
        self.model = Model(self.run(self.store.now()))
        self.position = 0
        # Every (id, fence) ever handed out.
        self.locks: list[tuple[int, int]] = []
        # Decisions taken on what was seen, not yet carried out.
        self.decisions: list[tuple[Move, Sight]] = []
        self.theme = Theme()
        for name, settings in QUEUES.items():
            created = self.run(self.broker.admin.create_queue(name, **settings))
            self.model.create_queue(created.id, name, created.settings)
        letters = self.run(self.broker.admin.queue("_dead_letter"))
        self.model.create_queue(letters.id, letters.name, letters.settings)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def attempt(self, work: Coroutine[Any, Any, T]) -> T | PenstockError:
        """What it returned, or what it raised."""
        try:
            return self.run(work)
        except PenstockError as error:
            return error

    def answer(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """The answer, also where the broker raises it."""
        answer = self.attempt(work)
        return Answer(KINDS[type(answer)]) if isinstance(answer, PenstockError) else answer

    def teardown(self) -> None:
        self.run(self.store.close())
        self.loop.close()
        self.engine.close()

    def look_at_everything(self) -> None:
        """Every record by itself, and all of a state, newest first."""
        self.model.touched |= set(self.model.items)
        lines = tuple(line.id for line in self.model.queues.values())
        for state in State:
            found = self.run(self.store.find(Query(lines, state, limit=1_000)))
            known = [item.id for item in self.model.items.values() if item.state is state]
            assert [record.message.id for record in found] == sorted(known, reverse=True)

    @invariant()
    def store_and_model_agree(self) -> None:
        self.check_history()
        self.check_places()
        for id in sorted(self.model.touched):
            self.check_record(self.model.items[id])
        self.model.begin_step()

    def check_history(self) -> None:
        """The same rows were written, in the same order for each message."""
        rows = self.run(self.store.recent(self.position, 1_000))
        self.position = max((row.position for row in rows), default=self.position)
        assert by_message(rows) == by_message(self.model.fresh)
        for row in self.model.fresh:
            ends = [each for each in self.model.items[row.id].timeline if each.final]
            assert len(ends) <= 1, f"message {row.id} ended twice"

    def check_places(self) -> None:
        """Every message is where the model has it, and nowhere else."""
        told = {
            (tally.queue_id, tally.place): (tally.count, tally.digest)
            for tally in self.run(self.store.census())
        }
        ids: dict[tuple[int, str], list[int]] = defaultdict(list)
        for item in self.model.items.values():
            ids[item.queue.id, "message"].append(item.id)
            ids[item.queue.id, item.place or "ended"].append(item.id)
        assert told == {where: (len(found), digest(found)) for where, found in ids.items()}

    def held(self) -> list[tuple[int, int]]:
        """The current locks."""
        return [(item.id, item.held().fence) for item in self.model.at("lease")]

    def state_of(self, item: Item) -> State | None:
        record = self.run(self.store.get(item.id))
        return None if record is None else record.state

    def check_lease(self, lease: Lease) -> None:
        """What a rule is told about a lease."""
        item = self.model.items[lease.id]
        hold = item.held()
        assert (lease.fence, lease.queue_id) == (hold.fence, item.queue.id)
        assert (lease.attempts, lease.deliveries) == (item.attempts, item.deliveries)
        assert (lease.claimed_at, lease.lease_until) == (hold.claimed_at, hold.until)
        assert lease.length == hold.length
        assert (lease.now, lease.parked) == (self.model.now, item.parked)
        assert bool(lease.flags & Flag.CANCEL_REQUESTED) == hold.cancel_requested
        assert bool(lease.flags & Flag.UNBEGUN) == hold.unbegun
        assert bool(lease.flags & Flag.FROM_DEAD) == hold.from_dead
        if hold.from_dead:
            assert lease.dead_reason == item.dead_reason
        else:
            assert lease.first_claimed_at == item.first_claimed_at

    def check_record(self, item: Item) -> None:
        record = self.run(self.store.get(item.id))
        assert record is not None, f"message {item.id} is not found"
        assert record.message.body == item.draft.body
        assert record.message.meta.parent_id == item.draft.parent_id
        assert drop_positions(list(record.timeline)) == item.timeline
        assert make_comparable(record) == make_expected(item, self.model.blocker(item))
        if (name := item.draft.name) is not None:
            named = self.model.names[item.queue.name, name]
            assert self.run(self.store.named(item.queue.id, name)) == named
        body, until = self.model.results.get(item.id, (None, 0))
        result = body if until > self.model.now else None
        # One without a result has a null if others may wait for it.
        stored = self.run(self.store.result(item.id))
        assert stored == result or (result is None and stored == b"null")


def by_message(rows: list[HistoryRow]) -> dict[int, list[HistoryRow]]:
    found: dict[int, list[HistoryRow]] = defaultdict(list)
    for row in drop_positions(rows):
        found[row.id].append(row)
    return found


def drop_positions(rows: list[HistoryRow]) -> list[HistoryRow]:
    return [msgspec.structs.replace(row, position=0) for row in rows]


def digest(ids: list[int]) -> int:
    return sum((id % 1_000_003) * (id % 1_000_033) % 1_000_000_007 for id in ids)


def make_comparable(record: Record) -> Record:
    """What of a record the model can tell as well; the rest is compared by itself."""
    return msgspec.structs.replace(record, message=NO_MESSAGE, timeline=())


def make_expected(item: Item, blocked_by: int | None) -> Record:
    hold = item.hold or Hold(0, "", 0, 0, 0)
    reason, error = cause(item)
    due_at = None if item.due_at == NEVER else item.due_at
    return Record(
        NO_MESSAGE,
        item.state,
        item.attempts,
        item.deliveries,
        reason,
        error,
        item.run_at,
        item.expires_at,
        due_at if item.place == "scheduled" and item.turn is None else None,
        hold.until or None,
        hold.consumer or None,
        hold.cancel_requested,
        hold.percent,
        hold.note,
        claimed_at=hold.claimed_at or None,
        begun_at=hold.begun_at,
        blocked_by=blocked_by,
    )


def cause(item: Item) -> tuple[str | None, str | None]:
    """The reason and the error a message shows: of its death, or of what happened last."""
    if item.place == "dead" or (item.hold is not None and item.hold.from_dead):
        return item.dead_reason, item.dead_error
    if item.hold is not None or not item.timeline:
        return None, None
    return item.timeline[-1].reason, item.timeline[-1].error
