"""Waits in the store and in the model: holds, edges, signals, steps, looks and decisions."""

from msgspec.structs import replace

from penstock.broker.waiting.dependencies import hold
from penstock.model.fields import MAX_WAITS
from penstock.model.message import After, Draft, Flag, State, Verb
from penstock.model.store_types import AnswerKind, Lock, Published
from penstock.model.waiting import HeldEnd, Hold, SignalDraft, StepRecord, StepSave, Wait
from penstock.rules.waiting import WaitRequest, decide_wait
from tests.conformance.machine.consumers import Consumers
from tests.conformance.machine.producers import Producers
from tests.conformance.machine.wishes import LockPair

# A look works off at most so many nudges; repeated until none is left.
MAX_LOOKS = 30
# The others of an atomic batch that was refused.
NOT_PUBLISHED = "NOT_PUBLISHED"


class Waiters(Producers, Consumers):
    def wait(self, lock: LockPair, holds: tuple[Hold, ...], steps: tuple[StepRecord, ...]) -> None:
        """Ends a delivery until its holds have ended."""
        (lease,) = self.run(self.store.leases([Lock(*lock)]))
        assert lease is not None
        self.check_lease(lease)
        if lease.flags & Flag.FROM_DEAD:
            assert self.run(self.store.wait(make_wait(lock, lease.flags))).kind is (
                AnswerKind.INVALID
            )
            return
        facts = self.run(self.store.wait_facts(*lock))
        request = WaitRequest(reason="test", holds=holds, steps=steps)
        decided = decide_wait(lease, request, facts, MAX_WAITS)
        sight = self.model.see_wait(lock[0], holds, steps)
        if isinstance(decided, Wait):
            for _ in range(2):
                answer = self.run(self.store.wait(decided))
                assert answer.kind == self.model.suspend(sight, "test")
        else:
            (answer,) = self.run(self.store.settle([decided]))
            assert answer.kind == self.model.suspend(sight, "test")

    def wait_stale(self, lock: LockPair) -> None:
        """A wait under an old or invented lock changes nothing."""
        refusal = self.model.refusal(*lock, Verb.WAIT)
        if refusal is not None:
            assert self.run(self.store.wait(make_wait(lock, 0))).kind == refusal

    def publish_family(self, drafts: list[Draft], after: After) -> None:
        """The last one waits for others before it: those of the batch, and stored ones by id."""
        refusal = self.first_refusal(drafts)
        if any(self.model.barred(draft) for draft in drafts):
            return
        entries = [self.run(self.broker.admit(draft)) for draft in drafts]
        entries[-1] = hold(entries[-1], after)
        answers = self.run(self.store.enqueue(entries, atomic=True))
        codes = [each.code for each in answers if each.code not in (None, NOT_PUBLISHED)]
        if refusal is not None:
            assert codes[0] == refusal
            return
        assert codes == []
        ids: list[int] = []
        for draft, answer in zip(drafts[:-1], answers, strict=False):
            self.follow_publish(draft, answer)
            ids.append(answer.id)
        self.follow_held(drafts[-1], answers[-1], after, tuple(ids))

    def follow_held(
        self, draft: Draft, answer: Published, after: After, ids: tuple[int, ...]
    ) -> None:
        verdict = self.model.judge(draft)
        if verdict.duplicate_of is not None:
            assert (answer.id, answer.duplicate) == (verdict.duplicate_of, True)
            return
        self.check_new(draft, answer.id)
        self.model.enter_held(draft, answer.id, after, ids)

    def signal(self, id: int, name: str) -> None:
        answer = self.run(self.store.signal(SignalDraft(id=id, name=name, body=b"1")))
        assert answer.code == self.model.signal(id, name)
        # A store may resume at once what waits for nothing else, or leave it to the next look.
        if answer.resumed:
            assert self.model.look_once(self.model.items[id]), f"message {id} still waits"

    def save_step(self, lock: LockPair, name: str) -> None:
        """Stores a step, which consumes the oldest signal of its name; then says so again."""
        stored = self.run(self.store.signals(lock[0]))
        mine = [each.id for each in stored if each.name == name and not each.consumed]
        step = StepRecord(name=name, key="1", body=b"1", position=1)
        save = StepSave(
            id=lock[0], fence=lock[1], step=step, consumes=mine[0] if mine else None
        )  # fmt: skip
        again = replace(save, step=replace(step, body=b"2"))
        for each in (save, again):
            (saved,) = self.run(self.store.save_steps([each]))
            assert saved.kind == self.model.save_step(*lock, step)
            if saved.kind in (AnswerKind.DONE, AnswerKind.ALREADY):
                assert saved.step is not None
                assert saved.step.body == b"1"

    def look(self) -> None:
        """Works off all nudges, and everything that is due."""
        looked = self.run(self.store.resume_held())
        resumed, rounds = looked.resumed, 0
        while looked.seen:
            looked, rounds = self.run(self.store.resume_held()), rounds + 1
            resumed += looked.resumed
            assert rounds < MAX_LOOKS, "the looks find something for ever"
        assert resumed == self.model.look_at_holds()
        assert looked.next_at == self.model.next_look()
        self.check_holds()

    def check_holds(self) -> None:
        """Every held message has its holds, every other one has none, and doctor agrees."""
        items = self.model.items.values()
        rows = self.run(self.store.holds([item.id for item in items]))
        told = sorted((row.held_id, row.kind, row.number, row.due_at) for row in rows)
        known = sorted(
            (item.id, each.kind, each.number, each.due_at) for item in items for each in item.waits
        )
        assert told == known
        waits = [check for check in self.run(self.store.examine()) if check.name == "waits"]
        assert all(check.ok for check in waits), waits

    def decide_outside(self, id: int) -> None:
        """A decision ends a held message; a second one comes too late."""
        end = HeldEnd(
            id=id, verb=Verb.DECIDE, state=State.COMPLETED, reason="approve", result=b"yes"
        )
        for _ in range(2):
            (answer,) = self.run(self.store.end_held([end]))
            assert answer.kind == self.model.decide_held(id)


def make_wait(lock: LockPair, flags: int) -> Wait:
    return Wait(
        id=lock[0],
        fence=lock[1],
        seen_flags=flags,
        attempts=0,
        deliveries=0,
        reason="test",
        holds=(Hold(kind="moment", delay=1.0),),
    )
