"""A store that records what passes through it: for the product, whose calls nobody else sees."""

from collections.abc import Sequence
from typing import cast

from msgspec.structs import replace

from penstock import stores
from penstock.broker.interfaces.broker import BrokerInterface
from penstock.broker.local import Broker
from penstock.client.brokers import BrokerPool
from penstock.model.message import Verb
from penstock.model.store_types import (
    Answer,
    AnswerKind,
    Claim,
    Claimed,
    Completion,
    Entry,
    Extension,
    Lock,
    Mark,
    Move,
    Published,
)
from penstock.model.waiting import SignalAnswer, SignalDraft, Wait
from penstock.store import Store
from tests import checker
from tests.checker import Publish, Recorder, Settle, Signal
from tests.faults.storm.bodies import read
from tests.faults.storm.recording import (
    VERBS,
    record,
    record_claimed,
    record_published,
    record_settled,
)

SECOND = 1_000_000


class RecordingConnections(BrokerPool):
    """Every broker of an app, also the one its heartbeats use, works through a recording store."""

    def __init__(self, url: str, recorder: Recorder) -> None:
        super().__init__(url, "default")
        self.recorder = recorder

    async def open(self) -> BrokerInterface:
        store = await stores.open(self.url)
        names = {queue.id: queue.name for queue in await store.queues()}
        return Broker(cast(Store, RecordingStore(store, self.recorder, names)))


class RecordingStore:
    """What it does not record it hands on."""

    def __init__(self, store: Store, recorder: Recorder, names: dict[int, str]) -> None:
        self.store = store
        self.recorder = recorder
        self.names = names

    def __getattr__(self, name: str) -> object:
        return cast(object, getattr(self.store, name))

    async def __aenter__(self) -> Store:
        await self.store.__aenter__()
        return cast(Store, self)

    async def __aexit__(self, *error: object) -> None:
        await self.store.__aexit__(*error)

    async def enqueue(self, entries: Sequence[Entry], *, atomic: bool = False) -> list[Published]:
        now = await self.store.now()
        calls = [self._publish(entry, now) for entry in entries]
        work = self.store.enqueue(entries, atomic=atomic)
        return await record(
            self.recorder, calls, work, lambda all: list(map(record_published, all))
        )

    def _publish(self, entry: Entry, now: int) -> Publish:
        label, _ = read(entry.body)
        due_at = now + int(entry.delay * SECOND) if entry.delay else entry.run_at
        key, priority = entry.ordering_key, entry.priority
        return Publish(label, self.names[entry.queue_id], key, None, due_at, priority)

    async def claim(self, claim: Claim) -> Claimed:
        """The product asks for one queue at a time."""
        (queue_id,) = claim.queue_ids
        return await record(
            self.recorder,
            [checker.Claim(self.names[queue_id], claim.begins)],
            self.store.claim(claim),
            lambda taken: [
                checker.Answer(
                    "ok", claims=tuple(record_claimed(each, claim.lease) for each in taken.messages)
                )
            ],
        )

    async def complete(self, items: Sequence[Completion]) -> list[Answer]:
        calls = [Settle("complete", item.id, item.fence) for item in items]
        return await record(self.recorder, calls, self.store.complete(items), answers)

    async def acomplete_on(self, connection: object, item: Completion) -> None:
        """Whether the handler's transaction is committed is not told here."""
        self.recorder.invoke(Settle("complete", item.id, item.fence))
        await self.store.acomplete_on(connection, item)

    async def extend(self, items: Sequence[Extension]) -> list[Answer]:
        calls = [Settle("extend", item.id, item.fence) for item in items]
        return await record(self.recorder, calls, self.store.extend(items), answers)

    async def mark(self, items: Sequence[Mark]) -> list[Answer]:
        begins = [item.begin for item in items]
        return await record(
            self.recorder,
            [Settle("begin", item.id, item.fence) for item in items if item.begin],
            self.store.mark(items),
            lambda told: answers([a for a, begin in zip(told, begins, strict=True) if begin]),
        )

    async def settle(self, moves: Sequence[Move]) -> list[Answer]:
        """What an agent reclaims is not this process's word."""
        now = await self.store.now()
        own = [move.verb in VERBS for move in moves]
        due = [now + int(move.delay * SECOND) for move in moves]
        return await record(
            self.recorder,
            [Settle(VERBS[move.verb], move.id, move.fence) for move in moves if move.verb in VERBS],
            self.store.settle(moves),
            lambda told: [
                record_settled(answer, due_at)
                for answer, due_at, mine in zip(told, due, own, strict=True)
                if mine
            ],
        )

    async def wait(self, asked: Wait) -> Answer:
        names = [hold.name for hold in asked.holds if hold.kind == "signal"]
        call = Settle("wait", asked.id, asked.fence, signal=names[0] if names else "")
        now = await self.store.now()
        told, _ = await record(
            self.recorder,
            [call, *(self._publish(child, now) for child in asked.children)],
            self._wait(asked),
            lambda done: record_wait(asked, *done),
        )
        return told

    async def _wait(self, asked: Wait) -> tuple[Answer, tuple[int, ...]]:
        """Waits, and names the messages that it waits for, in the order of their ids."""
        told = await self.store.wait(asked)
        edges = await self.store.edges(asked.id) if told.kind is AnswerKind.DONE else []
        return told, tuple(edge.awaited_id for edge in edges if edge.number == asked.fence)

    async def signal(self, draft: SignalDraft) -> SignalAnswer:
        return await record(
            self.recorder,
            [Signal(draft.id, draft.name)],
            self.store.signal(draft),
            lambda told: [checker.Answer("refused" if told.code else "ok", told.code or "")],
        )

    async def explain(self, locks: Sequence[Lock], verbs: Sequence[Verb]) -> list[Answer]:
        """A settlement whose lease was gone before it was tried."""
        calls = [
            Settle(VERBS[verb], lock.id, lock.fence)
            for lock, verb in zip(locks, verbs, strict=True)
        ]
        return await record(self.recorder, calls, self.store.explain(locks, verbs), answers)


def record_wait(asked: Wait, told: Answer, awaits: tuple[int, ...]) -> list[checker.Answer]:
    """The answer of the wait, then those of the children that it publishes."""
    own = replace(record_settled(told, told.due_at), awaits=awaits)
    if told.kind is not AnswerKind.DONE:
        return [own] * (1 + len(asked.children))
    return [own, *(checker.Answer("ok", id=id) for id in awaits[: len(asked.children)])]


def answers(told: Sequence[Answer]) -> list[checker.Answer]:
    return [record_settled(answer) for answer in told]
