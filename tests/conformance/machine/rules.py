"""The rules: which verbs are tried, with what, and what happens in between."""

from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from penstock.message import Nack, Settlement
from penstock.queue import DEAD_LETTER, QueueState
from tests.conformance.machine.keepers import Keepers
from tests.conformance.machine.operators import Operators
from tests.conformance.machine.producers import Producers
from tests.conformance.machine.queues import CHANGES
from tests.conformance.machine.wishes import (
    TYPES,
    LockPair,
    Theme,
    Wish,
    batches,
    draft_of,
    ended,
    endings,
    held,
    ids,
    lines,
    locks,
    mostly,
    settlements,
    themes,
    wishes,
)

AGENTS = ("sweep", "promote", "expire", "sweep_keys", "look_at_everything")
MEANWHILE = ("extend", "extend a little", "cancel", "void", "complete", "begin", "retry", "steal")
WORDS = ("extend", "begin", "half", 50.0, 0.0)
STOPPED = (QueueState.PAUSED, QueueState.DRAINING, QueueState.ARCHIVED)
PLACES = (["ready"], ["scheduled"], ["dead"], ["ready", "scheduled", "dead"])

limits = st.sampled_from([1, 2, 4, 20])
types = st.sampled_from([(), (), TYPES[:1], TYPES])
openings: st.SearchStrategy[tuple[Theme, list[Wish]]] = themes.flatmap(
    lambda theme: st.tuples(st.just(theme), st.lists(wishes(theme), min_size=3, max_size=10))
)


class Machine(Producers, Keepers, Operators):
    rested_at = (0, 0, 0)

    @initialize(opening=openings)
    def open(self, opening: tuple[Theme, list[Wish]]) -> None:
        self.theme, batch = opening
        self.publish_batch(batch, False)

    @rule(batch=batches, atomic=mostly(False, True), alike=mostly(False, True))
    def publish_batch(self, batch: list[Wish], atomic: bool, alike: bool = False) -> None:
        """Alike ones differ in nothing but their bodies."""
        if alike:
            batch = [batch[0] | {"body": b"%d" % number} for number in range(6)]
        drafts = [draft_of(wish, self.model.now) for wish in batch]
        if len(drafts) == 1:
            self.publish(drafts[0])
        else:
            self.publish_many(drafts, atomic=atomic)

    @precondition(lambda self: self.model.claimable())
    @rule(
        names=lines,
        limit=limits,
        lease=mostly(None, 3.0),
        types=types,
        begins=st.booleans(),
        merge=st.booleans(),
    )
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

    @precondition(lambda self: self.model.claimable())
    @rule(
        names=lines,
        limit=limits,
        begins=st.booleans(),
        ends=st.lists(endings, min_size=3, max_size=8),
    )
    def work(
        self, names: list[str], limit: int, begins: bool, ends: list[Settlement | bytes]
    ) -> None:
        """Claims and settles one after the other, as a worker does; some are left running."""
        taken = self.claim(names, "worker", limit, begins=begins)
        for lock, end in zip(taken, ends, strict=False):
            self.store_and_model_agree()
            self.end_one(lock, end)

    @precondition(lambda self: self.model.claimable())
    @rule(names=lines, end=endings)
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

    @precondition(lambda self: self.locks)
    @rule(batch=st.lists(st.tuples(locks, endings), min_size=1, max_size=4))
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

    @precondition(lambda self: self.locks)
    @rule(lock=locks, words=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3))
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

    @precondition(lambda self: self.held())
    @rule(
        lock=held,
        settlement=settlements,
        meanwhile=st.lists(st.sampled_from(MEANWHILE), max_size=2),
        later=mostly(False, True),
    )
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
            case "cancel" | "void" if lock[0] in self.model.items:
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

    @precondition(lambda self: self.held())
    @rule(limit=mostly(100, 1), meanwhile=st.lists(st.sampled_from(MEANWHILE), max_size=2))
    def crash(self, limit: int, meanwhile: list[str]) -> None:
        """Leases run out, and some are acted on between the look and the reclaim."""
        self.travel(31.0)
        self.sweep(limit, [partial(self.act, act) for act in meanwhile])

    @precondition(lambda self: self.stopped() or self.rested_at != self.work_done())
    @rule(
        seconds=st.sampled_from([1.0, 3.0, 10.0, 31.0, 90.0]),
        agents=st.sets(st.sampled_from(AGENTS)),
        resume=mostly(True, False),
    )
    def pass_time(self, seconds: float, agents: set[str], resume: bool) -> None:
        """Not twice in a row: a long time is as good as two short ones."""
        self.travel(seconds)
        for agent in sorted(agents):
            getattr(self, agent)()
            self.store_and_model_agree()
        if resume:
            self.resume()
        self.rested_at = self.work_done()

    def work_done(self) -> tuple[int, int, int]:
        return len(self.model.items), len(self.locks), self.position

    def stopped(self) -> list[str]:
        """Queues that do not serve now."""
        names = (*self.theme.queues, DEAD_LETTER)
        return [name for name in names if not self.model.serves(name)]

    def resume(self) -> None:
        """Whatever was stopped runs again."""
        for name in self.stopped():
            self.switch(name, QueueState.ACTIVE)
        self.pause_scope(paused=False)

    @precondition(lambda self: self.model.due() or self.model.expirable())
    @rule(limit=st.sampled_from([1, 2]))
    def repair_a_little(self, limit: int) -> None:
        self.promote(limit)
        self.store_and_model_agree()
        self.expire(limit)

    @precondition(lambda self: self.model.claimable())
    @rule(rounds=st.integers(1, 5), limit=limits, end=settlements)
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

    @precondition(lambda self: self.model.at("dead"))
    @rule(
        batch=st.lists(ended, min_size=1, max_size=4),
        how=st.sampled_from(["in place", "one", "edited", "never"]),
    )
    def revive(self, batch: list[int], how: str) -> None:
        """Redrives, or gives up."""
        match how:
            case "in place":
                self.redrive_in_place(batch)
            case "never":
                self.purge_dead(batch[:2])
            case _:
                self.redrive(batch[0], b"edited" if how == "edited" else None)

    @rule(
        order=st.sampled_from(["cancel", "cancel", "purge", "switch", "pause", "change"]),
        names=lines,
        id=ids,
        force=st.booleans(),
        places=st.sampled_from(PLACES),
        state=mostly(QueueState.ACTIVE, *STOPPED),
        changes=st.sampled_from(CHANGES),
    )
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
        """One rule for all that operators do, so that consumers have more turns than they."""
        match order:
            case "cancel":
                self.cancel(id, force=force)
            case "purge":
                self.purge(names[0], places, 100 if force else 1)
            case "switch":
                self.switch(names[0], state)
            case "pause":
                self.pause_scope(paused=state is QueueState.PAUSED)
            case "change":
                self.set_queue(names[0], changes)
