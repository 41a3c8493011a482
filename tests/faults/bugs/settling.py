"""Bugs of settling, cancelling and the history."""

from tests.checker import Answer, Cancel, Claimed, Kind, Row, Settle
from tests.faults.ticket import FINAL, Ticket

from .bug import Bug


class ChecksNoFence(Bug):
    """Settles by id only."""

    breaks = Kind.STALE_FENCE_ACCEPTED

    def holds(self, ticket: Ticket, fence: int) -> bool:
        if ticket.fence != fence and self.known(ticket.holder):
            self.strike(told=True)
        return True


class ExtendsForAll(Bug):
    """Lets an old fence lengthen the new lease."""

    breaks = Kind.STALE_FENCE_ACCEPTED

    def settle(self, call: Settle) -> Answer:
        ticket = self.tickets[call.id]
        if call.verb == "extend" and ticket.state == "claimed" and ticket.fence != call.fence:
            if self.known(ticket.holder):
                self.strike(told=True)
            return self.extend(ticket)
        return super().settle(call)


class SaysYesToAll(Bug):
    """A late complete is told that it won."""

    breaks = Kind.DOUBLE_ACK

    def refuse_settle(self, ticket: Ticket, call: Settle) -> Answer:
        if call.verb == "complete" and ticket.state == "completed":
            self.strike(told=True)
            return Answer("ok")
        return super().refuse_settle(ticket, call)


class RevivesFinished(Bug):
    """The reaper looks at the lease it read before, not at the state."""

    breaks = Kind.REDELIVERED_AFTER_ACK

    def sweep(self) -> None:
        super().sweep()
        for ticket in self.tickets.values():
            if ticket.state == "completed" and self.sometimes(0.05):
                ticket.state = "ready"

    def hand_out(self, ticket: Ticket, fence: int, begins: bool) -> Claimed:
        if any(row.final for row in ticket.rows):
            self.strike(told=True)
        return super().hand_out(ticket, fence, begins)


class RevivesRejected(Bug):
    """Brings a rejected message back without a redrive."""

    breaks = Kind.REDELIVERED_AFTER_ACK

    def conclude(self, ticket: Ticket, verb: str, state: str) -> Answer:
        answer = super().conclude(ticket, verb, state)
        if verb == "reject":
            ticket.state = "ready"
            self.marks[ticket.id] = (self.now, self.token)
        return answer

    def hand_out(self, ticket: Ticket, fence: int, begins: bool) -> Claimed:
        _, reject = self.marks.get(ticket.id, (0, None))
        if self.known(reject):
            self.strike(told=True, provided=lambda: self.untouched(ticket))
        return super().hand_out(ticket, fence, begins)


class AcksInVain(Bug):
    """Answers before the commit, which then fails."""

    breaks = Kind.ACKED_BUT_NOT_COMPLETED

    def complete(self, ticket: Ticket) -> Answer:
        if self.sometimes():
            self.strike(told=True, provided=lambda: ticket.state != "completed")
            return Answer("ok")
        return super().complete(ticket)


class CompletesItself(Bug):
    """Takes a lost worker for a finished one."""

    breaks = Kind.COMPLETED_WITHOUT_ACK

    def reclaim(self, ticket: Ticket) -> None:
        fence = ticket.fence
        self.move(ticket, "complete", "completed")
        self.strike(provided=lambda: not self.asked["complete", ticket.id, fence])


class AppliesRefused(Bug):
    """Writes the error text and its row, then finds that the fence is old."""

    breaks = Kind.REFUSED_BUT_APPLIED

    def refuse_settle(self, ticket: Ticket, call: Settle) -> Answer:
        once = (call.verb, call.id, call.fence)
        if call.verb in ("complete", "nack"):
            ticket.rows.insert(0, Row(call.verb, ticket.state, call.fence, self.now))
            self.strike(told=True, provided=lambda: self.asked[once] == 1)
        return super().refuse_settle(ticket, call)


class ForgetsRow(Bug):
    breaks = Kind.HISTORY_GAP

    def write_row(self, ticket: Ticket, verb: str, state: str) -> None:
        if verb == "nack" and self.sometimes():
            self.strike(told=True)
        else:
            super().write_row(ticket, verb, state)


class ForgetsReclaim(Bug):
    """Writes no row for a lost delivery."""

    breaks = Kind.HISTORY_GAP

    def write_row(self, ticket: Ticket, verb: str, state: str) -> None:
        if verb == "reclaim" and self.known(ticket.holder):
            forced = self.marks
            self.strike(provided=lambda: ticket.id not in forced)
        else:
            super().write_row(ticket, verb, state)

    def cancel(self, call: Cancel) -> Answer:
        self.marks[call.id] = (self.now, self.token)
        return super().cancel(call)


class EndsTwice(Bug):
    """Reclaims what was just nacked."""

    breaks = Kind.ENDED_TWICE

    def nack(self, ticket: Ticket) -> Answer:
        fence = ticket.fence
        answer = super().nack(ticket)
        ticket.rows.append(Row("reclaim", ticket.state, fence, self.now))
        self.strike()
        return answer


class CancelsFinished(Bug):
    breaks = Kind.TWO_FINALS

    def cancel(self, call: Cancel) -> Answer:
        ticket = self.tickets[call.id]
        if ticket.state in FINAL:
            self.move(ticket, "cancel", "cancelled")
            self.strike()
            return Answer("ok", state="cancelled")
        return super().cancel(call)


class ForgetsCancel(Bug):
    """Loses the request when the worker gives the message back."""

    breaks = Kind.CANCELLED_BUT_DELIVERED

    def request_cancel(self, ticket: Ticket) -> None:
        self.marks[ticket.id] = (self.now, self.token)

    def hand_out(self, ticket: Ticket, fence: int, begins: bool) -> Claimed:
        _, cancel = self.marks.get(ticket.id, (0, None))
        if self.known(cancel):
            self.strike(told=True, provided=lambda: self.untouched(ticket))
        return super().hand_out(ticket, fence, begins)


class ForceFencesNobody(Bug):
    """A forced cancel leaves the worker its fence."""

    breaks = Kind.STALE_FENCE_ACCEPTED

    def cancel(self, call: Cancel) -> Answer:
        ticket = self.tickets[call.id]
        if call.force and ticket.state == "claimed":
            self.marks[ticket.id] = (self.now, self.token)
            return Answer("ok", state="cancelled")
        return super().cancel(call)

    def holds(self, ticket: Ticket, fence: int) -> bool:
        _, cancel = self.marks.get(ticket.id, (0, None))
        if ticket.fence == fence and self.known(cancel):
            self.strike(told=True)
        return super().holds(ticket, fence)


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
