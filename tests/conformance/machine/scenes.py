"""Scenes from the life of a store: a few verbs one after the other, compared after each."""

from functools import partial
from typing import Any

import msgspec

from penstock.model.message import After, Nack, Settlement, SettleReject
from penstock.model.queue import DEAD_LETTER, QueueState
from penstock.model.waiting import Hold, StepRecord
from tests.conformance.machine.governors import RECEIVERS, Governors
from tests.conformance.machine.keepers import Keepers
from tests.conformance.machine.operators import Operators
from tests.conformance.machine.waiters import Waiters
from tests.conformance.machine.wishes import LockPair, Wish, draft_of


class Scenes(Waiters, Keepers, Operators, Governors):
    def publish_batch(
        self, batch: list[Wish], *, atomic: bool = False, alike: bool = False
    ) -> None:
        """Alike ones differ in nothing but their bodies."""
        if alike:
            batch = [batch[0] | {"body": b"%d" % number} for number in range(6)]
        drafts = [draft_of(wish, self.model.now) for wish in batch]
        if len(drafts) == 1:
            self.publish(drafts[0])
        else:
            self.publish_many(drafts, atomic=atomic)

    def take(
        self,
        names: list[str],
        limit: int,
        lease: float | None,
        types: tuple[str, ...],
        begins: bool,
        merge: bool,
    ) -> None:
        if merge and len(self.theme.queues) > 1:
            self.claim_merged(self.theme.queues, limit, types, begins)
        else:
            self.claim(names, "ann", limit, lease, types, begins)

    def work(
        self, names: list[str], limit: int, begins: bool, ends: list[Settlement | bytes]
    ) -> None:
        """Claims and settles one after the other, as a worker does; some are left running."""
        taken = self.claim(names, "worker", limit, begins=begins)
        for lock, end in zip(taken, ends, strict=False):
            self.store_and_model_agree()
            self.end_one(lock, end)

    def drain(self, names: list[str], end: Settlement | bytes) -> None:
        """One at a time, so that every order there is gets seen; never for ever."""
        for _ in range(12):
            taken = self.claim(names, "worker", 1)
            for lock in taken:
                self.end_one(lock, end)
            self.store_and_model_agree()
            if not taken:
                return

    def end_one(self, lock: LockPair, end: Settlement | bytes) -> None:
        if isinstance(end, bytes):
            self.complete(lock, end)
        else:
            self.settle(lock, end)

    def end(self, batch: list[tuple[LockPair, Settlement | bytes]]) -> None:
        """One, or a batch; a batch is completed if its first is."""
        if len(batch) == 1:
            self.end_one(*batch[0])
            return
        # Of two fences of one message, which is looked at first is the store's affair.
        fences = dict(lock for lock, _ in reversed(batch))
        batch = [(lock, end) for lock, end in batch if fences[lock[0]] == lock[1]]
        if isinstance(batch[0][1], bytes):
            self.complete_many([lock for lock, _ in batch])
        else:
            self.settle_many([(lock, end) for lock, end in batch if not isinstance(end, bytes)])

    def say(self, lock: LockPair, words: list[str | float]) -> None:
        """What a consumer tells about its work under one lease."""
        for word in words:
            match word:
                case "extend":
                    self.extend([lock, *self.held()], 8.0)
                case "begin":
                    self.begin(lock)
                case str(note):
                    self.progress(lock, None, note)
                case percent:
                    self.progress(lock, percent, None)

    def hesitate(
        self, lock: LockPair, settlement: Settlement, meanwhile: list[str], later: bool
    ) -> None:
        """Decides, and others act before it is carried out."""
        self.decisions.append(self.decide(lock, settlement))
        for act in meanwhile:
            self.act(act, lock)
            self.store_and_model_agree()
        if not later:
            self.carry_out(self.decisions)
            self.decisions = []

    def act(self, name: str, lock: LockPair) -> None:
        """Something happens to a message that somebody is about to settle."""
        match name:
            case "extend" | "extend a little":
                self.extend([lock], 50.0 if name == "extend" else 0.1)
            case "cancel" | "void":
                self.cancel(lock[0], force=name == "void")
            case "complete":
                self.complete(lock)
            case "begin":
                self.begin(lock)
            case "retry":
                self.settle(lock, Nack("at once", delay=0.0))
            case "steal":
                self.settle(lock, Nack("at once", delay=0.0))
                self.claim(self.theme.queues, "thief")

    def crash(self, limit: int, meanwhile: list[str]) -> None:
        """Leases run out, and some are acted on between the look and the reclaim."""
        self.travel(31.0)
        self.sweep(limit, [partial(self.act, act) for act in meanwhile])

    def pass_time(self, seconds: float, agents: set[str], resume: bool) -> None:
        self.travel(seconds)
        for agent in sorted(agents):
            getattr(self, agent)()
            self.store_and_model_agree()
        if resume:
            self.resume()

    def stopped(self) -> list[str]:
        """Queues that do not serve now."""
        names = (*self.theme.queues, DEAD_LETTER)
        return [name for name in names if not self.model.serves(name)]

    def resume(self) -> None:
        """Whatever was stopped runs again."""
        for name in self.stopped():
            self.switch(name, QueueState.ACTIVE)
        self.pause_scope(paused=False)

    def suspend(
        self,
        lock: LockPair,
        holds: tuple[Hold, ...],
        steps: tuple[StepRecord, ...],
        then: list[str],
    ) -> None:
        """A run waits, and something happens to it before or after the look."""
        self.wait(lock, holds, steps)
        self.store_and_model_agree()
        self.rouse(lock[0], then)

    def rouse(self, id: int, acts: list[str]) -> None:
        for act in acts:
            match act:
                case "look":
                    self.look()
                case "decide":
                    self.decide_outside(id)
                case "cancel":
                    self.cancel(id, force=False)
                case "expire":
                    self.expire()
                case "travel":
                    self.travel(3.0)
                case name:
                    self.signal(id, name)
            self.store_and_model_agree()

    def depend(self, batch: list[Wish], after: After, by_name: bool, then: str) -> None:
        """A message waits for the others of its batch, and for stored ones that have a name."""
        drafts = [draft_of(wish, self.model.now) for wish in batch]
        drafts[-1] = msgspec.structs.replace(drafts[-1], dedup=None)
        named = (
            [item.id for item in self.model.items.values() if item.draft.name] if by_name else []
        )
        entries = tuple(range(len(drafts) - 1))
        need = min(after.need, len(entries) + len(named[:2])) or 1
        after = msgspec.structs.replace(after, entries=entries, ids=tuple(named[:2]), need=need)
        self.publish_family(drafts, after)
        self.store_and_model_agree()
        match then:
            case "cancel":
                self.cancel(list(self.model.items)[-len(drafts) :][0], force=False)
            case "work" | "reject":
                for lock in self.claim(self.theme.queues, "worker"):
                    self.end_one(lock, b"42" if then == "work" else SettleReject("bad"))
        self.store_and_model_agree()
        self.look()

    def govern(self, batch: list[Wish], serve: int, end: Settlement | bytes) -> None:
        """Publishes through rules and to subscriptions, and works on some of it."""
        self.open_gate()
        self.publish_governed([draft_of(wish, self.model.now) for wish in batch])
        self.store_and_model_agree()
        if serve:
            for lock in self.claim(RECEIVERS, "worker", serve)[1:]:
                self.end_one(lock, end)

    def stale_wait(self, lock: LockPair, name: str) -> None:
        """An old lock neither waits nor stores steps; a current one stores its step once."""
        self.wait_stale(lock)
        self.store_and_model_agree()
        self.save_step(lock, name)

    def repair_a_little(self, limit: int) -> None:
        self.promote(limit)
        self.store_and_model_agree()
        self.expire(limit)

    def release_badly(self, rounds: int, limit: int, end: Settlement) -> None:
        """What is claimed comes to nothing; what died of it is redriven, the last one first."""
        dead: list[int] = []
        for _ in range(rounds):
            for lock in self.claim(self.theme.queues, "worker", limit):
                self.settle(lock, end)
                dead += [lock[0]] if self.model.items[lock[0]].place == "dead" else []
            self.store_and_model_agree()
        if dead:
            self.redrive_in_place(dead[::-1])

    def revive(self, batch: list[int], how: str) -> None:
        """Redrives, or gives up."""
        match how:
            case "in place":
                self.redrive_in_place(batch)
            case "never":
                self.purge_dead(batch[:2])
            case _:
                self.redrive(batch[0], b"edited" if how == "edited" else None)

    def operate(
        self,
        order: str,
        names: list[str],
        id: int,
        force: bool,
        places: list[str],
        state: QueueState,
        changes: dict[str, Any],
    ) -> None:
        match order:
            case "cancel":
                self.cancel(id, force=force)
            case "edit":
                self.edit(id, b"edited")
            case "rerank":
                self.rerank(id, 5 if force else 0)
            case "purge":
                self.purge(names[0], places, 100 if force else 1)
            case "switch":
                self.switch(names[0], state)
            case "pause":
                self.pause_scope(paused=state is QueueState.PAUSED)
            case "change":
                self.set_queue(names[0], changes)
