"""Bugs of attempts, deliveries and their limits."""

from collections.abc import Iterator

from tests.checker import Claimed, Kind, Stored
from tests.faults.ticket import Ticket

from .bug import Bug


class ForgetsAttempt(Bug):
    breaks = Kind.ATTEMPTS_WRONG

    def count_attempt(self, ticket: Ticket) -> None:
        if ticket.cancel_requested or not self.sometimes():
            super().count_attempt(ticket)
        else:
            self.strike(provided=lambda: self.untouched(ticket))


class Marked(Bug):
    """Seen if the next delivery after a wrong count is seen, and the one before was."""

    def mark(self, ticket: Ticket) -> None:
        if self.known(ticket.holder):
            self.marks[ticket.id] = (ticket.fence, ticket.holder)

    def hand_out(self, ticket: Ticket, fence: int, begins: bool) -> Claimed:
        before, _ = self.marks.pop(ticket.id, (0, None))
        if before and ticket.rows[-1].fence == before:
            self.strike(told=True, provided=lambda: not self.asked["begin", ticket.id, before])
        return super().hand_out(ticket, fence, begins)


class ExpiryBurnsAttempt(Marked):
    """Counts a lost worker as a failed attempt although the queue says keep."""

    breaks = Kind.ATTEMPTS_WRONG

    def count_expiry(self, ticket: Ticket) -> None:
        if self.settings.on_expiry == "keep":
            self.mark(ticket)
        ticket.attempts += 1


class ExpiryForgetsAttempt(Marked):
    breaks = Kind.ATTEMPTS_WRONG

    def count_expiry(self, ticket: Ticket) -> None:
        if self.settings.on_expiry == "count" and ticket.deliveries >= 2:
            self.mark(ticket)


class ReleaseBurnsDelivery(Marked):
    breaks = Kind.DELIVERIES_WRONG

    def give_back(self, ticket: Ticket) -> None:
        self.mark(ticket)


class PrefetchBurnsDelivery(Marked):
    """What a killed worker had not begun counts against it."""

    breaks = Kind.DELIVERIES_WRONG

    def give_back_unbegun(self, ticket: Ticket) -> None:
        self.mark(ticket)


class ForgetsDelivery(Bug):
    """Takes the count from a stale read."""

    breaks = Kind.DELIVERIES_WRONG

    def count_delivery(self, ticket: Ticket) -> None:
        if ticket.rows and ticket.rows[-1].verb == "nack" and self.sometimes(0.5):
            self.strike(told=True)
        else:
            super().count_delivery(ticket)


class NeverDies(Bug):
    """Looks at no limit before the ninth delivery."""

    breaks = Kind.OVER_DELIVERED

    def may_retry(self, ticket: Ticket) -> bool:
        return ticket.deliveries < 9

    def hand_out(self, ticket: Ticket, fence: int, begins: bool) -> Claimed:
        if not super().may_retry(ticket):
            self.strike(told=True)
        return super().hand_out(ticket, fence, begins)


class DiesEarly(Bug):
    """One run too few."""

    breaks = Kind.DEAD_TOO_EARLY

    def may_retry(self, ticket: Ticket) -> bool:
        ticket.attempts, ticket.deliveries = ticket.attempts + 1, ticket.deliveries + 1
        allowed = super().may_retry(ticket)
        ticket.attempts, ticket.deliveries = ticket.attempts - 1, ticket.deliveries - 1
        return allowed

    def dump(self) -> Iterator[Stored]:
        for ticket in self.tickets.values():
            used = ticket.rows and ticket.rows[-1].verb in ("nack", "reclaim")
            if ticket.state == "dead" and used and super().may_retry(ticket):
                self.strike()
        return super().dump()


BUGS: tuple[type[Bug], ...] = (
    ForgetsAttempt,
    ExpiryBurnsAttempt,
    ExpiryForgetsAttempt,
    ReleaseBurnsDelivery,
    PrefetchBurnsDelivery,
    ForgetsDelivery,
    NeverDies,
    DiesEarly,
)
