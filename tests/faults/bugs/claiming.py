"""Bugs of fences, leases, due times and ordering keys."""

from collections.abc import Callable, Iterator

from tests.checker import Answer, Claim, Claimed, Kind, Stored
from tests.faults.ticket import Ticket, Token

from .bug import Bug


class ReusesFence(Bug):
    breaks = Kind.FENCE_REUSED
    fence = 0
    owner: Token | None = None

    def next_fence(self) -> int:
        before = self.owner
        self.owner = self.token
        if self.fence and before and self.sometimes():
            self.strike(told=True, provided=lambda: before in self.told)
        else:
            self.fence = super().next_fence()
        return self.fence


class ShrinksFence(Bug):
    """Counts fences in the memory of a process that restarts."""

    breaks = Kind.FENCE_NOT_GROWING

    def hand_out(self, ticket: Ticket, fence: int, begins: bool) -> Claimed:
        if self.known(ticket.holder):
            self.strike(told=True)
        return super().hand_out(ticket, 1_000_000 - fence, begins)


class ReclaimsEarly(Bug):
    """Compares the lease with a clock that runs ahead."""

    breaks = Kind.LEASE_BROKEN_EARLY

    def expired(self, ticket: Ticket) -> bool:
        early = ticket.lease_until - 700_000 < self.now < ticket.lease_until - 100_000
        if early and self.known(ticket.holder):
            self.strike()
        return early or super().expired(ticket)


class ReclaimsLate(Bug):
    """Sweeps too seldom."""

    breaks = Kind.LATE_RECLAIM

    def expired(self, ticket: Ticket) -> bool:
        late = ticket.lease_until + 3_000_000 < self.now
        calm = ticket.lease_until > self.cut_until + 1_100_000
        if late and calm and self.known(ticket.holder):
            self.strike()
        return late


class NeverReclaims(Bug):
    """Recovers leases only of workers that start again."""

    breaks = Kind.STUCK

    def expired(self, ticket: Ticket) -> bool:
        return ticket.id % 4 > 0 and super().expired(ticket)

    def dump(self) -> Iterator[Stored]:
        if any(ticket.state == "claimed" for ticket in self.tickets.values()):
            self.strike()
        return super().dump()


class IgnoresDue(Bug):
    breaks = Kind.EARLY_DELIVERY

    def due(self, ticket: Ticket) -> bool:
        return True

    def hand_out(self, ticket: Ticket, fence: int, begins: bool) -> Claimed:
        if (ticket.call.due_at or 0) > self.now + 10_000:
            self.strike(told=True, provided=lambda: self.untouched(ticket))
        return super().hand_out(ticket, fence, begins)


class IgnoresBackoff(Bug):
    """Puts what was nacked back into ready at once."""

    breaks = Kind.EARLY_DELIVERY

    def nack(self, ticket: Ticket) -> Answer:
        answer = super().nack(ticket)
        ticket.due_at = 0
        self.marks[ticket.id] = (answer.due_at or 0, self.token)
        return answer

    def hand_out(self, ticket: Ticket, fence: int, begins: bool) -> Claimed:
        due_at, nack = self.marks.get(ticket.id, (0, None))
        if due_at > self.now + 10_000:
            self.strike(told=True, provided=lambda: nack in self.told and self.untouched(ticket))
        return super().hand_out(ticket, fence, begins)


class IgnoresKey(Bug):
    """Two of one key at a time."""

    breaks = Kind.ORDER

    def heads_its_key(self, ticket: Ticket) -> bool:
        return True

    def complete(self, ticket: Ticket) -> Answer:
        """Seen if another one is open beside it now and is completed later."""
        for other in self.tickets.values():
            same = other.call.ordering_key == ticket.call.ordering_key is not None
            if same and other is not ticket and self.beside(other):
                self.strike(told=True, provided=self.both_clean(ticket, other))
        return super().complete(ticket)

    def both_clean(self, one: Ticket, other: Ticket) -> Callable[[], bool]:
        return lambda: self.clean(one) and self.clean(other)

    def beside(self, other: Ticket) -> bool:
        return other.state == "claimed" and self.known(other.holder)


class RetryFreesKey(IgnoresKey):
    """The next of a key runs while the first waits for its retry."""

    def heads_its_key(self, ticket: Ticket) -> bool:
        return self.heads.get(ticket.call.ordering_key or "", ticket.id) == ticket.id

    def frees_key(self, ticket: Ticket) -> bool:
        return True

    def beside(self, other: Ticket) -> bool:
        return other.open and bool(other.rows) and other.rows[-1].verb == "nack"


class Overtakes(Bug):
    """One of a key at a time, the newest first."""

    breaks = Kind.ORDER

    def heads_its_key(self, ticket: Ticket) -> bool:
        return self.heads.get(ticket.call.ordering_key or "", ticket.id) == ticket.id

    def claimable(self, call: Claim) -> list[Ticket]:
        self.tickets = dict(sorted(self.tickets.items(), reverse=True))
        for ticket in (found := super().claimable(call)):
            for other in self.tickets.values():
                if self.overtaken(other, ticket):
                    self.strike(told=True, provided=self.both_clean(ticket, other))
        return found

    def both_clean(self, one: Ticket, other: Ticket) -> Callable[[], bool]:
        return lambda: self.untouched(one) and self.clean(other)

    def overtaken(self, other: Ticket, ticket: Ticket) -> bool:
        """By real time: a publish that came late may have been asked for before the other."""
        same = other.call.ordering_key == ticket.call.ordering_key is not None and ticket.publisher
        plain = other.call.due_at is None and ticket.call.due_at is None and not other.rows
        told_at = self.told.get(other.publisher or ("", 0), self.now)
        return bool(same) and plain and other.open and told_at < ticket.created_at - 20_000


BUGS: tuple[type[Bug], ...] = (
    ReusesFence,
    ShrinksFence,
    ReclaimsEarly,
    ReclaimsLate,
    NeverReclaims,
    IgnoresDue,
    IgnoresBackoff,
    IgnoresKey,
    RetryFreesKey,
    Overtakes,
)
