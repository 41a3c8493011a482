"""The model's books: every message in its place, the lines of the keys, and history."""

from collections.abc import Iterable

from penstock.model.message import HistoryRow, Moment, State, Verb
from penstock.model.queue import QueueState
from penstock.model.settings import QueueSettings
from tests.conformance.model.items import Hold, Item, Line, moment_after
from tests.conformance.model.rules import Ruling


class Ledger:
    def __init__(self, now: Moment) -> None:
        self.now = now
        self.scope_paused = False
        self.queues: dict[str, Line] = {}
        self.items: dict[int, Item] = {}
        self.names: dict[tuple[str, str], int] = {}
        self.uniques: dict[tuple[str, str], int] = {}
        self.windows: dict[tuple[str, str], tuple[int, Moment]] = {}
        self.results: dict[int, tuple[bytes, Moment]] = {}
        self.last_fence = 0
        self.ends_of_lines = 0
        # What the last step did: history rows, and the messages it touched.
        self.fresh: list[HistoryRow] = []
        self.touched: set[int] = set()

    def create_queue(self, id: int, name: str, settings: QueueSettings) -> None:
        self.queues[name] = Line(id, name, settings)

    def told_state(self, name: str) -> QueueState:
        """The state that a claim tells: a paused scope pauses its queues."""
        state = self.queues[name].state
        paused = self.scope_paused and state in (QueueState.ACTIVE, QueueState.DRAINING)
        return QueueState.PAUSED if paused else state

    def begin_step(self) -> None:
        self.fresh, self.touched = [], set()

    def at(self, place: str, queue: str | None = None) -> list[Item]:
        return [
            item
            for item in self.items.values()
            if item.place == place and queue in (None, item.queue.name)
        ]

    def put(self, item: Item, place: str | None) -> None:
        """Into exactly one place. A lease is left by being put elsewhere."""
        if place != "lease":
            item.hold = None
        item.place = place
        self.touched.add(item.id)

    def write(
        self,
        item: Item,
        verb: Verb,
        state: State,
        *,
        reason: str | None = None,
        error: str | None = None,
        hold: Hold | None = None,
        due_at: Moment | None = None,
    ) -> None:
        """One row of history, with the counters as they now are."""
        row = HistoryRow(
            0,
            item.id,
            item.queue.id,
            verb,
            state,
            reason,
            error,
            item.attempts,
            item.deliveries,
            None if hold is None else hold.consumer,
            None if hold is None else hold.fence,
            None if hold is None else hold.claimed_at,
            self.now,
            due_at,
            state.final,
        )
        item.timeline.append(row)
        self.fresh.append(row)

    def end(
        self,
        item: Item,
        verb: Verb,
        state: State,
        reason: str | None = None,
        error: str | None = None,
    ) -> None:
        """Not by a consumer: expired, cancelled, replaced, purged. A lease on it is void."""
        self.write(item, verb, state, reason=reason, error=error, hold=item.hold)
        item.waits = []
        self.put(item, None)
        self.free(item)

    def free(self, item: Item) -> None:
        """Finished or dead: its unique key is free, and its ordering key moves on."""
        unique = item.draft.dedup
        if unique is not None and self.uniques.get((item.queue.name, unique.key)) == item.id:
            del self.uniques[item.queue.name, unique.key]
        item.turn = None
        if item.heads_key:
            item.heads_key = False
            self.advance(item.queue.name, item.key)

    def advance(self, queue: str, key: str | None) -> None:
        """A key nobody heads goes to the first in its line."""
        line = [item for item in self.of_key(queue, key) if item.turn is not None]
        if line and not any(item.heads_key for item in self.of_key(queue, key)):
            first = self.next_of(line)
            first.turn, first.heads_key = None, True
            self.put(first, "ready")

    def next_of(self, line: list[Item]) -> Item:
        return min(line, key=lambda item: item.turn or (0, 0))

    def of_key(self, queue: str, key: str | None) -> Iterable[Item]:
        return [
            item
            for item in self.items.values()
            if item.key == key is not None and item.queue.name == queue and item.place is not None
        ]

    def blocker(self, item: Item) -> int | None:
        """The message that heads the key for which this one waits."""
        heads = [each.id for each in self.of_key(item.queue.name, item.key) if each.heads_key]
        return heads[0] if item.turn is not None else None

    def get_in_line(self, item: Item, turn: tuple[int, int]) -> None:
        self.put(item, "scheduled")
        item.turn = turn
        self.advance(item.queue.name, item.key)

    def last_turn(self, item: Item) -> tuple[int, int]:
        """Behind all that were ever published to the queue, before all that will be."""
        self.ends_of_lines += 1
        newest = max(each.id for each in self.items.values() if each.queue is item.queue)
        return newest, self.ends_of_lines

    def follow(self, item: Item, verb: Verb, ruling: Ruling) -> None:
        """A lease ends as the rules say."""
        hold = item.held()
        item.attempts, item.deliveries = ruling.attempts, ruling.deliveries
        due_at = moment_after(self.now, ruling.delay)
        waits = ruling.state in (State.READY, State.SCHEDULED)
        self.write(
            item,
            verb,
            ruling.state,
            reason=ruling.reason,
            error=ruling.error,
            hold=hold,
            due_at=due_at if ruling.state is State.SCHEDULED else None,
        )
        item.parked += verb is Verb.PARK
        if waits:
            self.wait(item, ruling.state, due_at, anew=ruling.delay > 0 or verb is Verb.NACK)
        elif ruling.state is State.DEAD:
            self.bury(item, hold, ruling)
        else:
            self.put(item, None)
            self.free(item)

    def wait(self, item: Item, state: State, due_at: Moment, *, anew: bool) -> None:
        """Back into line; one that was only handed back was due when it was due."""
        item.due_at = due_at
        if anew and item.queue.settings.ordering == "ready_time":
            item.rank = due_at // 1000
        self.put(item, state.value)

    def bury(self, item: Item, hold: Hold, ruling: Ruling) -> None:
        """Among the dead letters; one that came from there goes back to its own place."""
        if not hold.from_dead:
            item.dead_at = (self.now, item.id)
            item.dead_reason, item.dead_error = ruling.reason, None
        if ruling.error is not None:
            item.dead_error = ruling.error
        self.put(item, "dead")
        self.free(item)
