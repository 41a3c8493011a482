"""The model's waits: holds, edges, signals, steps, and the look that ends holds."""

from collections import Counter
from dataclasses import dataclass

from penstock.model.message import NEVER, After, Draft, Moment, State, Verb
from penstock.model.store_types import AnswerKind
from penstock.model.waiting import Hold as Asked
from penstock.model.waiting import StepRecord
from tests.conformance.model.consuming import Consuming
from tests.conformance.model.items import SECOND, Item, Waiting, moment_after
from tests.conformance.model.publishing import Publishing

QUICK = 9


@dataclass(frozen=True)
class WaitSight:
    """What a wait was decided on; it holds only if nothing changed since."""

    id: int
    fence: int
    flags: tuple[bool, bool]
    ends: State | None
    attempts: int
    deliveries: int
    holds: tuple[Asked, ...]
    steps: tuple[StepRecord, ...]


class Waits(Consuming, Publishing):
    def see_wait(
        self, id: int, holds: tuple[Asked, ...], steps: tuple[StepRecord, ...]
    ) -> WaitSight:
        item = self.items[id]
        hold = item.held()
        flags = (hold.unbegun, hold.cancel_requested)
        if hold.cancel_requested:
            return WaitSight(
                id, hold.fence, flags, State.CANCELLED, item.attempts, item.deliveries, (), ()
            )
        if self.quick(item) >= QUICK:
            holds = (*holds, Asked(kind="moment", delay=1.0))
        new = bool(steps) or any(fence == hold.fence for fence in item.steps.values())
        attempts, deliveries = (0, 0) if new else (item.attempts + 1, item.deliveries)
        return WaitSight(id, hold.fence, flags, None, attempts, deliveries, holds, steps)

    def quick(self, item: Item) -> int:
        """How many waits in a row ended within a second, or would have without a delay."""
        count, claimed_at = 0, item.held().claimed_at
        for row in reversed([row for row in item.timeline if row.verb is Verb.WAIT][-10:]):
            delayed = row.due_at is not None and row.due_at <= row.at + SECOND
            if claimed_at - row.at >= (3 * SECOND if delayed else SECOND):
                break
            count, claimed_at = count + 1, row.claimed_at or row.at
        return count

    def suspend(self, sight: WaitSight, reason: str) -> AnswerKind:
        if (refusal := self.refusal(sight.id, sight.fence, Verb.WAIT)) is not None:
            return refusal
        item = self.items[sight.id]
        hold = item.held()
        if (hold.unbegun, hold.cancel_requested) != sight.flags:
            return AnswerKind.CHANGED
        if sight.ends is not None:
            self.end(item, Verb.WAIT, sight.ends, "requested")
            return AnswerKind.DONE
        item.attempts, item.deliveries = sight.attempts, sight.deliveries
        for step in sight.steps:
            item.steps[step.name, step.key] = sight.fence
        item.waits = [self.waiting(each, sight.fence, ()) for each in sight.holds]
        item.due_at = min((each.due_at for each in item.waits), default=NEVER)
        due_at = None if item.due_at == NEVER else item.due_at
        self.write(item, Verb.WAIT, State.SCHEDULED, reason=reason, hold=hold, due_at=due_at)
        item.parked, item.first_claimed_at = 0, None
        self.put(item, "scheduled")
        return AnswerKind.DONE

    def waiting(self, asked: Asked, number: int, published: tuple[int, ...]) -> Waiting:
        due_at = NEVER if asked.due_at is None else asked.due_at
        if asked.delay is not None:
            due_at = moment_after(self.now, asked.delay)
        after = asked.after or After()
        ids = dict.fromkeys([*(published[place] for place in after.entries), *after.ids])
        return Waiting(
            asked.kind, number, due_at, asked.name, after.policy, after.need, after.on_dead,
            dict.fromkeys(ids),
        )  # fmt: skip

    def enter_held(self, draft: Draft, id: int, after: After, published: tuple[int, ...]) -> None:
        """A message that waits for others before its first delivery."""
        item = self.written(draft, id)
        overflows = self.full(draft.queue)
        self.items[id] = item
        self.remember(item)
        if overflows:
            self.overflow(item)
            return
        item.waits = [self.waiting(Asked(kind="after", after=after), 0, published)]
        if item.run_at is not None:
            item.waits.append(self.waiting(Asked(kind="moment", due_at=item.run_at), 0, ()))
        item.due_at = min(each.due_at for each in item.waits)
        self.put(item, "scheduled")

    def involved(self, item: Item) -> bool:
        """It must keep its id: holds, steps or other messages know it by that."""
        steps = item.steps and item.place != "dead"
        return bool(item.waits or steps) or self.awaited(item.id)

    def awaited(self, id: int) -> bool:
        """A message has an open edge to this one."""
        return any(
            each.edges.get(id, State.READY) is None
            for item in self.items.values()
            for each in item.waits
        )

    def save_step(self, id: int, fence: int, step: StepRecord) -> AnswerKind:
        if (refusal := self.refusal(id, fence)) is not None:
            return refusal
        item = self.items[id]
        if item.held().from_dead:
            return AnswerKind.INVALID
        if (step.name, step.key) in item.steps:
            return AnswerKind.ALREADY
        item.steps[step.name, step.key] = fence
        if step.name in item.signals:
            item.signals.remove(step.name)
        self.touched.add(id)
        return AnswerKind.DONE

    def signal(self, id: int, name: str) -> str | None:
        item = self.items.get(id)
        if item is None:
            return "NOT_FOUND"
        if item.place is None:
            return "INVALID_STATE"
        item.signals.append(name)
        return None

    def look_at_holds(self) -> int:
        """Until nothing more happens: one that is cancelled may cancel those behind it."""
        resumed = 0
        while found := [item for item in self.at("scheduled") if self.look_once(item)]:
            resumed += sum(item.place is not None for item in found)
        return resumed

    def look_once(self, item: Item) -> bool:
        """True if it was resumed, or cancelled because it can never be."""
        if not item.waits:
            return False
        verdicts = [self.verdict(item, each) for each in item.waits]
        if False in verdicts:
            self.end(item, Verb.CANCEL, State.CANCELLED, "dependency_failed")
            return True
        left = [each for each, ended in zip(item.waits, verdicts, strict=True) if not ended]
        if left:
            item.waits = left
            item.due_at = min(each.due_at for each in left)
            self.touched.add(item.id)
            return False
        self.resume_held(item)
        return True

    def resume_held(self, item: Item) -> None:
        item.waits, item.due_at = [], self.now
        if item.key is None or item.heads_key:
            self.put(item, "ready")
        else:
            self.get_in_line(item, (item.id, 0))

    def verdict(self, item: Item, hold: Waiting) -> bool | None:
        for id, known in hold.edges.items():
            state = self.items[id].state
            if known is None and (state.final or (state is State.DEAD and hold.settles)):
                hold.edges[id] = state
        if hold.due_at <= self.now:
            return True
        if hold.kind == "signal":
            return True if hold.name in item.signals else None
        return self.after_verdict(hold) if hold.kind == "after" else None

    def after_verdict(self, hold: Waiting) -> bool | None:
        counts = Counter(hold.edges.values())
        done, still = counts[State.COMPLETED], counts[None]
        failed = len(hold.edges) - done - still
        if hold.policy == "any":
            verdict = True if done >= hold.need else None if done + still >= hold.need else False
        elif hold.policy == "all":
            verdict = False if failed else None if still else True
        elif hold.policy == "decision":
            verdict = None
        else:
            verdict = None if still else True
        return True if verdict is False and hold.number else verdict

    def decide_held(self, id: int) -> AnswerKind:
        """A decision from outside: the first end counts."""
        item = self.items.get(id)
        if item is None:
            return AnswerKind.MISSING
        if not item.waits:
            return AnswerKind.INVALID
        self.results[id] = (b"yes", moment_after(self.now, item.queue.settings.keep_results))
        self.end(item, Verb.DECIDE, State.COMPLETED, "approve")
        return AnswerKind.DONE

    def waiting_ids(self) -> list[int]:
        return [item.id for item in self.at("scheduled") if item.waits]

    def next_look(self) -> Moment | None:
        due = [item.due_at for item in self.at("scheduled") if item.waits]
        return min((each for each in due if each != NEVER), default=None)
