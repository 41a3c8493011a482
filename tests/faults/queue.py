"""The model of the contract as a queue in memory that virtual processes can call."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from random import Random

from penstock.model.message import (
    Dedup,
    Draft,
    Fail,
    HistoryRow,
    Nack,
    Reclaim,
    Release,
    Settlement,
    SettleReject,
)
from penstock.model.settings import QueueSettings, RetrySettings
from penstock.model.store_types import AnswerKind
from tests.checker import (
    Answer,
    Cancel,
    Claim,
    Claimed,
    Fire,
    Publish,
    Queue,
    Redrive,
    Row,
    Settle,
    Signal,
    Stored,
)
from tests.checker.events import ALREADY_SETTLED, INVALID_STATE, LOCK_LOST, AnyCall
from tests.conformance.model import Model
from tests.conformance.model.consuming import Ask
from tests.conformance.model.items import Item

LEASE = 1.0
DEPTH = 10
BODY = b"intact"
DONE = Answer("ok")
REFUSALS = {
    AnswerKind.ALREADY: Answer("refused", ALREADY_SETTLED),
    AnswerKind.LOST: Answer("refused", LOCK_LOST),
    AnswerKind.INVALID: Answer("refused", INVALID_STATE),
}

# A call: the process and its number.
Token = tuple[str, int]


def draft_of(call: Publish) -> Draft:
    """The label is the type: drafts of one dedup key differ in it, and are duplicates."""
    dedup = None if call.dedup is None else Dedup(call.dedup)
    return Draft(
        queue=call.queue,
        type=call.label,
        body=BODY,
        ordering_key=call.ordering_key,
        run_at=call.due_at,
        dedup=dedup,
    )


def row_of(row: HistoryRow) -> Row:
    return Row(row.verb.value, row.state.value, row.fence, row.at, row.final)


class SimulatedQueue(Model):
    """The simulator turns `now`, says whose call it is (`token`), what was asked and told."""

    def __init__(self, random: Random) -> None:
        super().__init__(now=0)
        self.random = random
        self.limits = Queue(
            "work",
            max_attempts=3,
            max_deliveries=5,
            counts=random.choice(("attempts", "deliveries")),
            on_expiry=random.choice(("keep", "count")),
        )
        self.create_queue(1, "work", self.choose_settings())
        self.cut_until = 0
        self.ticks: dict[tuple[str, int], int] = {}
        self.fired_by: dict[int, tuple[str, int]] = {}
        self.numbers = count(1)
        self.token: Token | None = None
        self.publishers: dict[int, Token | None] = {}
        self.holders: dict[int, Token | None] = {}
        self.told: dict[Token, int] = {}
        self.asked: Counter[tuple[str, int, int]] = Counter()

    def choose_settings(self) -> QueueSettings:
        return QueueSettings(
            ordering="fifo",
            max_attempts=self.limits.max_attempts,
            max_deliveries=self.limits.max_deliveries,
            retry=RetrySettings(count=self.limits.counts, on_expiry=self.limits.on_expiry),
            max_depth=DEPTH,
        )

    def apply(self, calls: Sequence[AnyCall]) -> list[Answer]:
        """One durable step; a batch of publishes is accepted or refused as a whole."""
        drafts = [call for call in calls if isinstance(call, Publish)]
        if len(drafts) > 1 and self.full("work", len(drafts)):
            return [self.refuse_publish(draft) for draft in drafts]
        return [self.answer(call) for call in calls]

    def answer(self, call: AnyCall) -> Answer:
        match call:
            case Publish():
                return self.answer_publish(call)
            case Claim():
                return self.answer_claim(call)
            case Settle():
                return self.answer_settle(call)
            case Cancel():
                return self.answer_cancel(call)
            case Redrive():
                return self.answer_redrive(call)
            case Fire():
                return self.answer_fire(call)
            case Signal():
                # Nothing waits for one in this queue.
                return Answer("refused", INVALID_STATE)

    def answer_publish(self, call: Publish) -> Answer:
        verdict = self.judge(draft_of(call))
        if verdict.code is not None:
            return self.refuse_publish(call)
        if verdict.duplicate_of is not None:
            return Answer("ok", id=verdict.duplicate_of, duplicate=True)
        return Answer("ok", id=self.store(call).id)

    def refuse_publish(self, call: Publish) -> Answer:
        return Answer("refused", "QUEUE_FULL")

    def store(self, call: Publish) -> Item:
        item = self.enter(draft_of(call), next(self.numbers), never_refused=True)
        self.publishers[item.id] = self.token
        return item

    def answer_claim(self, call: Claim) -> Answer:
        self.promote(len(self.items))
        ask = Ask((call.queue,), "worker", 3, LEASE, begins=call.begins)
        items = self.matching(ask)[: ask.limit]
        fence = self.next_fence() if items else 0
        for item in items:
            self.lend(ask, item, fence)
        return Answer("ok", claims=tuple(map(self.describe_claim, items)))

    def next_fence(self) -> int:
        self.last_fence += 1
        return self.last_fence

    def lend(self, ask: Ask, item: Item, fence: int) -> None:
        super().lend(ask, item, fence)
        self.holders[item.id] = self.token

    def describe_claim(self, item: Item) -> Claimed:
        hold = item.held()
        return Claimed(
            item.id,
            item.draft.type,
            hold.fence,
            item.attempts,
            item.deliveries,
            hold.claimed_at,
            hold.until,
            LEASE,
            item.draft.body == BODY,
        )

    def answer_settle(self, call: Settle) -> Answer:
        kind = self.apply_settle(call)
        if kind is not AnswerKind.DONE:
            return REFUSALS[kind]
        item = self.items[call.id]
        if call.verb == "extend":
            return Answer("ok", lease_until=item.held().until)
        if call.verb == "nack" and item.place == "scheduled":
            return Answer("ok", due_at=item.due_at)
        return DONE

    def apply_settle(self, call: Settle) -> AnswerKind:
        match call.verb:
            case "complete":
                return self.complete(call.id, call.fence, None)
            case "extend":
                return self.extend(call.id, call.fence, LEASE)
            case "begin":
                return self.begin(call.id, call.fence)
        return self.settle(call.id, call.fence, self.choose_settlement(call))

    def choose_settlement(self, call: Settle) -> Settlement:
        match call.verb:
            case "fail":
                return Fail()
            case "reject":
                return SettleReject()
            case "release":
                return Release()
            case "nack":
                return Nack(delay=self.random.choice((0.0, 0.1, 0.4)))
        raise AssertionError(f"no virtual process asks for {call.verb}")

    def answer_cancel(self, call: Cancel) -> Answer:
        asks_worker = self.items[call.id].place == "lease" and not call.force
        kind = self.cancel(call.id, force=call.force)
        if kind is not AnswerKind.DONE:
            return REFUSALS[kind]
        return Answer("ok", state="claimed" if asks_worker else "cancelled")

    def answer_redrive(self, call: Redrive) -> Answer:
        """A dead one comes back in place, a finished one as a copy."""
        item = self.items[call.id]
        if item.open:
            return REFUSALS[AnswerKind.INVALID]
        if item.place == "dead":
            self.redrive(item.id)
            return Answer("ok", id=item.id)
        copy = next(self.numbers)
        self.redrive_as_new(item.id, None, copy)
        if item.id in self.fired_by:
            self.fired_by[copy] = self.fired_by[item.id]
        return Answer("ok", id=copy)

    def answer_fire(self, call: Fire) -> Answer:
        tick = call.schedule, call.tick
        if known := self.find_fired(tick):
            return Answer("ok", id=known, duplicate=True)
        item = self.store(Publish(f"{call.schedule}@{call.tick}", "work"))
        self.fired_by[item.id] = tick
        self.ticks[tick] = item.id
        return Answer("ok", id=item.id)

    def find_fired(self, tick: tuple[str, int]) -> int | None:
        return self.ticks.get(tick)

    def sweep(self) -> None:
        for item in self.run_out():
            self.reclaim(item)

    def reclaim(self, item: Item) -> None:
        self.settle(item.id, item.held().fence, Reclaim())

    def places(self, item: Item) -> tuple[str, ...]:
        return () if item.place is None else (item.place,)

    def dump(self) -> Iterator[Stored]:
        return map(self.describe, self.items.values())

    def describe(self, item: Item) -> Stored:
        schedule, tick = self.fired_by.get(item.id, (None, None))
        timed = item.place == "scheduled" and item.turn is None
        return Stored(
            item.id,
            item.draft.type,
            item.queue.name,
            item.state.value,
            item.attempts,
            item.deliveries,
            tuple(map(row_of, item.timeline)),
            self.places(item),
            item.draft.body == BODY,
            item.due_at if timed else None,
            item.draft.parent_id,
            schedule,
            tick,
        )
