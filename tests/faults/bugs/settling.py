"""Bugs of settling, cancelling and the history."""

import msgspec

from penstock.model.message import State, Verb
from penstock.model.store_types import AnswerKind
from tests.checker import Answer, Kind, Settle
from tests.checker.events import LOCK_LOST
from tests.conformance.model import rules
from tests.conformance.model.consuming import Ask
from tests.conformance.model.items import Item
from tests.conformance.model.rules import Ruling

from .bug import Bug


class ChecksNoFence(Bug):
    """Settles by id only."""

    breaks = Kind.STALE_FENCE_ACCEPTED

    def refusal(self, id: int, fence: int, verb: Verb | None = None) -> AnswerKind | None:
        refusal = super().refusal(id, fence, verb)
        if refusal is not AnswerKind.LOST or self.items[id].hold is None:
            return refusal
        if self.is_held_by_known(self.items[id]):
            self.strike(told=True)
        return None


class ExtendsForAll(Bug):
    """Lets an old fence lengthen the new lease."""

    breaks = Kind.STALE_FENCE_ACCEPTED

    def extend(self, id: int, fence: int, lease: float) -> AnswerKind:
        hold = self.items[id].hold
        if hold is None or hold.fence == fence:
            return super().extend(id, fence, lease)
        if self.is_held_by_known(self.items[id]):
            self.strike(told=True)
        return super().extend(id, hold.fence, lease)


class SaysYesToAll(Bug):
    """A late complete is told that it won."""

    breaks = Kind.DOUBLE_ACK

    def complete(self, id: int, fence: int, result: bytes | None) -> AnswerKind:
        kind = super().complete(id, fence, result)
        late = kind in (AnswerKind.LOST, AnswerKind.INVALID)
        if not late or self.items[id].state is not State.COMPLETED:
            return kind
        self.strike(told=True)
        return AnswerKind.DONE


class RevivesFinished(Bug):
    """The reaper looks at the lease it read before, not at the state."""

    breaks = Kind.REDELIVERED_AFTER_ACK

    def sweep(self) -> None:
        super().sweep()
        for item in self.items.values():
            if item.state is State.COMPLETED and self.sometimes(0.05):
                self.put(item, "ready")

    def lend(self, ask: Ask, item: Item, fence: int) -> None:
        if any(row.final for row in item.timeline):
            self.strike(told=True)
        super().lend(ask, item, fence)


class RevivesRejected(Bug):
    """Brings a rejected message back without a redrive."""

    breaks = Kind.REDELIVERED_AFTER_ACK

    def follow(self, item: Item, verb: Verb, ruling: Ruling) -> None:
        super().follow(item, verb, ruling)
        if verb is Verb.REJECT:
            self.put(item, "ready")
            self.marks[item.id] = (self.now, self.token)

    def lend(self, ask: Ask, item: Item, fence: int) -> None:
        _, reject = self.marks.get(item.id, (0, None))
        if self.known(reject):
            self.strike(told=True, provided=lambda: self.untouched(item))
        super().lend(ask, item, fence)


class AcksInVain(Bug):
    """Answers before the commit, which then fails."""

    breaks = Kind.ACKED_BUT_NOT_COMPLETED

    def complete(self, id: int, fence: int, result: bytes | None) -> AnswerKind:
        if self.refusal(id, fence, Verb.COMPLETE) is None and self.sometimes():
            item = self.items[id]
            self.strike(told=True, provided=lambda: item.state is not State.COMPLETED)
            return AnswerKind.DONE
        return super().complete(id, fence, result)


class CompletesItself(Bug):
    """Takes a lost worker for a finished one."""

    breaks = Kind.COMPLETED_WITHOUT_ACK

    def reclaim(self, item: Item) -> None:
        fence = item.held().fence
        ruling = rules.make_end(item, State.COMPLETED, None, None, counts=0)
        self.follow(item, Verb.COMPLETE, ruling)
        self.strike(provided=lambda: not self.asked["complete", item.id, fence])


class AppliesRefused(Bug):
    """Writes the error text and its row, then finds that the fence is old."""

    breaks = Kind.REFUSED_BUT_APPLIED

    def answer_settle(self, call: Settle) -> Answer:
        once = (call.verb, call.id, call.fence)
        answer = super().answer_settle(call)
        item = self.items[call.id]
        late = answer.code == LOCK_LOST and item.hold is None
        if late and call.verb in ("complete", "nack"):
            self.write(item, Verb(call.verb), State.READY)
            row = msgspec.structs.replace(item.timeline.pop(), fence=call.fence)
            item.timeline.insert(0, row)
            self.strike(told=True, provided=lambda: self.asked[once] == 1)
        return answer


class ForgetsRow(Bug):
    breaks = Kind.HISTORY_GAP

    def follow(self, item: Item, verb: Verb, ruling: Ruling) -> None:
        super().follow(item, verb, ruling)
        if verb is Verb.NACK and not ruling.state.final and self.sometimes():
            item.timeline.pop()
            self.strike(told=True)


class ForgetsReclaim(Bug):
    """Writes no row for a lost delivery."""

    breaks = Kind.HISTORY_GAP

    def follow(self, item: Item, verb: Verb, ruling: Ruling) -> None:
        super().follow(item, verb, ruling)
        if verb is Verb.RECLAIM and not ruling.state.final and self.is_held_by_known(item):
            item.timeline.pop()
            self.strike(provided=lambda: item.id not in self.marks)

    def cancel(self, id: int, *, force: bool) -> AnswerKind:
        self.marks[id] = (self.now, self.token)
        return super().cancel(id, force=force)


class EndsTwice(Bug):
    """Reclaims what was just nacked."""

    breaks = Kind.ENDED_TWICE

    def follow(self, item: Item, verb: Verb, ruling: Ruling) -> None:
        hold = item.hold
        super().follow(item, verb, ruling)
        if verb is Verb.NACK:
            self.write(item, Verb.RECLAIM, item.state, hold=hold)
            self.strike()


class CancelsFinished(Bug):
    breaks = Kind.TWO_FINALS

    def cancel(self, id: int, *, force: bool) -> AnswerKind:
        item = self.items[id]
        if item.place is not None:
            return super().cancel(id, force=force)
        self.end(item, Verb.CANCEL, State.CANCELLED)
        self.strike()
        return AnswerKind.DONE


class ForgetsCancel(Bug):
    """Loses the request when the worker gives the message back."""

    breaks = Kind.CANCELLED_BUT_DELIVERED

    def cancel(self, id: int, *, force: bool) -> AnswerKind:
        if self.items[id].place != "lease" or force:
            return super().cancel(id, force=force)
        self.marks[id] = (self.now, self.token)
        return AnswerKind.DONE

    def lend(self, ask: Ask, item: Item, fence: int) -> None:
        _, cancel = self.marks.get(item.id, (0, None))
        if self.known(cancel):
            self.strike(told=True, provided=lambda: self.untouched(item))
        super().lend(ask, item, fence)


class ForceFencesNobody(Bug):
    """A forced cancel leaves the worker its fence."""

    breaks = Kind.STALE_FENCE_ACCEPTED

    def cancel(self, id: int, *, force: bool) -> AnswerKind:
        if self.items[id].place != "lease" or not force:
            return super().cancel(id, force=force)
        self.marks[id] = (self.now, self.token)
        return AnswerKind.DONE

    def refusal(self, id: int, fence: int, verb: Verb | None = None) -> AnswerKind | None:
        refusal = super().refusal(id, fence, verb)
        _, cancel = self.marks.get(id, (0, None))
        if refusal is None and self.known(cancel):
            self.strike(told=True)
        return refusal


BUGS: tuple[type[Bug], ...] = (
    ChecksNoFence,
    ExtendsForAll,
    SaysYesToAll,
    RevivesFinished,
    RevivesRejected,
    AcksInVain,
    CompletesItself,
    AppliesRefused,
    ForgetsRow,
    ForgetsReclaim,
    EndsTwice,
    CancelsFinished,
    ForgetsCancel,
    ForceFencesNobody,
)
