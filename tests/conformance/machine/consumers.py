"""Claiming from the store and from the model, settling, and what is said under a lease."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from penstock.model.message import Leased, Reclaim, Settlement, State, Verb
from penstock.model.queue import DEAD_LETTER
from penstock.model.store_types import Answer, AnswerKind, Completion, Extension, Lease, Lock, Move
from penstock.rules import lifecycle
from tests.conformance.machine.wishes import LockPair
from tests.conformance.machine.world import World
from tests.conformance.model.consuming import Ask, Sight

Decision = tuple[Move, Sight]


class Consumers(World):
    def claim(
        self,
        names: Sequence[str],
        consumer: str = "ann",
        limit: int = 20,
        lease: float | None = None,
        types: tuple[str, ...] = (),
        begins: bool = False,
    ) -> list[LockPair]:
        """Each queue in its turn, until there are enough."""
        taken = self.run(
            self.broker.claim(
                *[(name, types) for name in names],
                consumer=consumer,
                limit=limit,
                lease=lease,
                begins=begins,
                merge="rotate",
            )
        )
        assert taken.queues == {name: self.model.told_state(name) for name in names}
        served = {name: list(part) for name, part in groupby(taken.messages, self.line_of)}
        silent = [name for name in names if name not in served and self.model.serves(name)]
        assert all(name in names and self.model.serves(name) for name in served)
        for name in [*served, *silent]:
            seconds = lease or self.model.queues[name].settings.lease
            part = served.get(name, [])
            self.follow_claim(Ask((name,), consumer, limit, seconds, types, begins), part)
            limit -= len(part)
        return [(leased.id, leased.fence) for leased in taken.messages]

    def line_of(self, leased: Leased) -> str:
        item = self.model.items[leased.id]
        return DEAD_LETTER if item.place == "dead" else item.queue.name

    def claim_merged(
        self, names: Sequence[str], limit: int, types: tuple[str, ...], begins: bool
    ) -> None:
        """Several queues as one line, by rank."""
        wanted = [(name, types) for name in names]
        taken = self.run(
            self.broker.claim(*wanted, consumer="bob", limit=limit, begins=begins, merge="rank")
        )
        serving = tuple(name for name in names if self.model.serves(name))
        if not serving:
            assert taken.messages == []
            return
        seconds = min(self.model.queues[name].settings.lease for name in serving)
        self.follow_claim(Ask(serving, "bob", limit, seconds, types, begins), taken.messages)

    def follow_claim(self, ask: Ask, taken: list[Leased]) -> None:
        self.model.claim(ask, taken, self.cleared(ask))
        self.locks += [(leased.id, leased.fence) for leased in taken]
        for lease in self.run(self.store.leases([Lock(each.id, each.fence) for each in taken])):
            assert lease is not None
            self.check_lease(lease)

    def cleared(self, ask: Ask) -> list[int]:
        """Expired ones that the store ended in passing; which ones is its own affair."""
        return [
            item.id
            for item in self.model.expirable()
            if item.queue.name in ask.queues and self.state_of(item) is State.EXPIRED
        ]

    def complete(self, lock: LockPair, result: bytes | None = None) -> None:
        answer = self.answer(self.broker.complete(Lock(*lock), result))
        assert answer.kind == self.model.complete(*lock, result)
        self.check_outcome(answer, lock, Verb.COMPLETE)

    def complete_many(self, locks: list[LockPair]) -> None:
        items = [Completion(*lock, b"%d" % number) for number, lock in enumerate(locks)]
        answers = self.run(self.broker.complete_many(items))
        expected = [self.model.complete(item.id, item.fence, item.result) for item in items]
        assert [answer.kind for answer in answers] == expected
        for lock, answer in zip(locks, answers, strict=True):
            self.check_outcome(answer, lock, Verb.COMPLETE)

    def settle(self, lock: LockPair, settlement: Settlement) -> None:
        answer = self.answer(self.broker.settle(Lock(*lock), settlement))
        assert answer.kind == self.model.settle(*lock, settlement)
        self.check_outcome(answer, lock, settlement.verb)

    def settle_many(self, batch: list[tuple[LockPair, Settlement]]) -> None:
        items = [(Lock(*lock), settlement) for lock, settlement in batch]
        answers = self.run(self.broker.settle_many(items))
        expected = [self.model.settle(*lock, settlement) for lock, settlement in batch]
        assert [answer.kind for answer in answers] == expected
        for (lock, settlement), answer in zip(batch, answers, strict=True):
            self.check_outcome(answer, lock, settlement.verb)

    def check_outcome(self, answer: Answer, lock: LockPair, verb: Verb) -> None:
        """A call that was repeated is told what the first one led to."""
        if answer.kind is AnswerKind.ALREADY:
            assert answer.state == self.model.outcome(*lock, verb)

    def extend(self, locks: list[LockPair], lease: float) -> None:
        answers = self.run(self.broker.extend_many([Extension(*lock, lease) for lock in locks]))
        for lock, answer in zip(locks, answers, strict=True):
            assert answer.kind == self.model.extend(*lock, lease)
            if answer.kind is AnswerKind.DONE:
                hold = self.model.items[lock[0]].held()
                told = (answer.lease_until, answer.cancel_requested)
                assert told == (hold.until, hold.cancel_requested)

    def begin(self, lock: LockPair) -> None:
        assert self.answer(self.broker.begin(Lock(*lock))).kind == self.model.begin(*lock)
        (lease,) = self.run(self.store.leases([Lock(*lock)]))
        assert (lease is not None) == (lock in self.held())
        if lease is not None:
            self.check_lease(lease)

    def progress(self, lock: LockPair, percent: float | None, note: str | None) -> None:
        answer = self.answer(self.broker.progress(Lock(*lock), percent, note))
        assert answer.kind == self.model.progress(*lock, percent, note)

    def decide(self, lock: LockPair, settlement: Settlement) -> Decision:
        """Looks at a lease and decides; others may act before it is carried out."""
        (lease,) = self.run(self.store.leases([Lock(*lock)]))
        assert lease is not None
        return self.decision(lease, settlement)

    def decision(self, lease: Lease, settlement: Settlement) -> Decision:
        self.check_lease(lease)
        move = lifecycle.settle(lease, settlement, self.model.items[lease.id].queue.settings)
        expired_by = lease.now if isinstance(settlement, Reclaim) else None
        return move, self.model.look(lease.id, settlement, expired_by)

    def carry_out(self, decisions: Iterable[Decision]) -> None:
        """Moves go to the store as they were decided; it sees whether they still hold."""
        moves, sights = zip(*decisions, strict=True)
        answers = self.run(self.store.settle(moves))
        assert [answer.kind for answer in answers] == [self.model.act(sight) for sight in sights]
