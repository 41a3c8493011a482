"""A correct queue in memory, with one small method for each rule a bug may break."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from random import Random

from tests.checker import (
    Answer,
    Cancel,
    Claim,
    Claimed,
    Fire,
    Publish,
    Queue,
    Redrive,
    Row,
    Settle,
    Stored,
)
from tests.checker.events import AnyCall

from .ticket import FINAL, Ticket, Token

LEASE = 1.0
DEPTH = 18
REFUSED = Answer("refused", "INVALID_STATE")


class Model:
    """The simulator turns `now`, says whose call it is (`token`), what was asked and told."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.settings = Queue(
            "work",
            max_attempts=3,
            max_deliveries=5,
            counts=random.choice(("attempts", "deliveries")),
            on_expiry=random.choice(("keep", "count")),
        )
        self.now = self.cut_until = 0
        self.tickets: dict[int, Ticket] = {}
        self.keys: dict[str, int] = {}
        self.heads: dict[str, int] = {}
        self.ticks: dict[tuple[str, int], int] = {}
        self.numbers = count(1)
        self.fences = count(1)
        self.token: Token | None = None
        self.told: dict[Token, int] = {}
        self.asked: Counter[tuple[str, int, int]] = Counter()

    def apply(self, calls: Sequence[AnyCall]) -> list[Answer]:
        """One durable step; a batch of publishes is accepted or refused as a whole."""
        drafts = [call for call in calls if isinstance(call, Publish)]
        depth = sum(ticket.open for ticket in self.tickets.values()) if drafts else 0
        if depth + len(drafts) > DEPTH:
            return [self.refuse_publish(draft) for draft in drafts]
        return [self.answer(call) for call in calls]

    def answer(self, call: AnyCall) -> Answer:
        match call:
            case Publish():
                return self.publish(call)
            case Claim():
                return self.claim(call)
            case Settle():
                return self.settle(call)
            case Cancel():
                return self.cancel(call)
            case Redrive():
                return self.redrive(call)
            case Fire():
                return self.fire(call)

    def publish(self, call: Publish) -> Answer:
        if call.dedup is not None and (known := self.seen(call.dedup)):
            return Answer("ok", id=known, duplicate=True)
        ticket = self.store(call)
        if call.dedup is not None:
            self.keys[call.dedup] = ticket.id
        return Answer("ok", id=ticket.id)

    def seen(self, dedup: str) -> int | None:
        return self.keys.get(dedup)

    def refuse_publish(self, call: Publish) -> Answer:
        return Answer("refused", "QUEUE_FULL")

    def store(self, call: Publish) -> Ticket:
        ticket = Ticket(next(self.numbers), call)
        ticket.created_at, ticket.publisher = self.now, self.token
        self.tickets[ticket.id] = ticket
        return ticket

    def claim(self, call: Claim) -> Answer:
        tickets = self.claimable(call)
        fence = self.next_fence() if tickets else 0
        return Answer("ok", claims=tuple(self.hand_out(t, fence, call.begins) for t in tickets))

    def claimable(self, call: Claim) -> list[Ticket]:
        found: list[Ticket] = []
        for ticket in self.tickets.values():
            if len(found) < 3 and self.available(ticket):
                found.append(ticket)
                if ticket.call.ordering_key:
                    self.heads[ticket.call.ordering_key] = ticket.id
        return found

    def available(self, ticket: Ticket) -> bool:
        waiting = ticket.state in ("ready", "scheduled")
        return waiting and self.due(ticket) and self.heads_its_key(ticket)

    def due(self, ticket: Ticket) -> bool:
        return ticket.due_at <= self.now

    def heads_its_key(self, ticket: Ticket) -> bool:
        key = ticket.call.ordering_key
        if key is None:
            return True
        if key in self.heads:
            return self.heads[key] == ticket.id
        # One that is not due yet is not in line.
        line = [t for t in self.tickets.values() if t.call.ordering_key == key]
        return ticket.line == min(t.line for t in line if t.open and self.due(t))

    def next_fence(self) -> int:
        return next(self.fences)

    def hand_out(self, ticket: Ticket, fence: int, begins: bool) -> Claimed:
        self.count_delivery(ticket)
        ticket.state, ticket.fence = "claimed", fence
        ticket.lease_until = self.now + int(LEASE * 1_000_000)
        ticket.unbegun = begins and ticket.deliveries >= 2
        ticket.holder = self.token
        return Claimed(
            ticket.id,
            ticket.call.label,
            fence,
            ticket.attempts,
            ticket.deliveries,
            self.now,
            ticket.lease_until,
            LEASE,
            ticket.intact,
        )

    def count_delivery(self, ticket: Ticket) -> None:
        ticket.deliveries += 1

    def settle(self, call: Settle) -> Answer:
        ticket = self.tickets[call.id]
        if any((row.verb, row.fence) == (call.verb, call.fence) for row in ticket.rows):
            return Answer("refused", "ALREADY_SETTLED")
        if ticket.state != "claimed":
            return self.refuse_settle(ticket, call)
        if not self.holds(ticket, call.fence):
            return Answer("refused", "LOCK_LOST")
        verbs: dict[str, Callable[[Ticket], Answer]] = {
            "complete": self.complete,
            "fail": lambda ticket: self.conclude(ticket, "fail", "failed"),
            "reject": lambda ticket: self.conclude(ticket, "reject", "dead"),
            "nack": self.nack,
            "release": self.release,
            "extend": self.extend,
            "begin": self.begin,
        }
        return verbs[call.verb](ticket)

    def refuse_settle(self, ticket: Ticket, call: Settle) -> Answer:
        return REFUSED

    def holds(self, ticket: Ticket, fence: int) -> bool:
        return ticket.fence == fence

    def complete(self, ticket: Ticket) -> Answer:
        return self.conclude(ticket, "complete", "completed")

    def conclude(self, ticket: Ticket, verb: str, state: str) -> Answer:
        self.count_attempt(ticket)
        self.move(ticket, verb, state)
        return Answer("ok")

    def count_attempt(self, ticket: Ticket) -> None:
        ticket.attempts += 1

    def nack(self, ticket: Ticket) -> Answer:
        if ticket.cancel_requested:
            return self.conclude(ticket, "nack", "cancelled")
        self.count_attempt(ticket)
        if not self.may_retry(ticket):
            self.move(ticket, "nack", "dead")
            return Answer("ok")
        self.move(ticket, "nack", "scheduled")
        ticket.due_at = self.now + self.random.choice((0, 100_000, 400_000))
        return Answer("ok", due_at=ticket.due_at)

    def may_retry(self, ticket: Ticket) -> bool:
        limits = self.settings
        used = ticket.attempts if limits.counts == "attempts" else ticket.deliveries
        return used < limits.max_attempts and ticket.deliveries < limits.max_deliveries

    def release(self, ticket: Ticket) -> Answer:
        self.give_back(ticket)
        self.move(ticket, "release", "cancelled" if ticket.cancel_requested else "ready")
        return Answer("ok")

    def give_back(self, ticket: Ticket) -> None:
        ticket.deliveries -= 1

    def extend(self, ticket: Ticket) -> Answer:
        ticket.lease_until = max(ticket.lease_until, self.now + int(LEASE * 1_000_000))
        return Answer("ok", lease_until=ticket.lease_until)

    def begin(self, ticket: Ticket) -> Answer:
        ticket.unbegun = False
        return Answer("ok")

    def cancel(self, call: Cancel) -> Answer:
        ticket = self.tickets[call.id]
        if not ticket.open:
            return REFUSED
        if ticket.state == "claimed" and not call.force:
            self.request_cancel(ticket)
            return Answer("ok", state="claimed")
        self.move(ticket, "cancel", "cancelled")
        return Answer("ok", state="cancelled")

    def request_cancel(self, ticket: Ticket) -> None:
        ticket.cancel_requested = True

    def redrive(self, call: Redrive) -> Answer:
        """A dead one comes back in place, last of its key's line; a finished one as a copy."""
        ticket = self.tickets[call.id]
        if ticket.open:
            return REFUSED
        if ticket.state != "dead":
            copy = self.store(Publish(ticket.call.label, ticket.call.queue))
            copy.parent, copy.fired = ticket.id, ticket.fired
            return Answer("ok", id=copy.id)
        ticket.attempts = ticket.deliveries = ticket.due_at = 0
        ticket.cancel_requested = False
        ticket.line = max(self.tickets) + len(ticket.rows) * 1000
        ticket.state = "ready"
        ticket.rows.append(Row("redrive", "ready", None, self.now))
        return Answer("ok", id=ticket.id)

    def fire(self, call: Fire) -> Answer:
        tick = call.schedule, call.tick
        if known := self.fired(tick):
            return Answer("ok", id=known, duplicate=True)
        ticket = self.store(Publish(f"{call.schedule}@{call.tick}", "work"))
        ticket.fired = tick
        self.ticks[tick] = ticket.id
        return Answer("ok", id=ticket.id)

    def fired(self, tick: tuple[str, int]) -> int | None:
        return self.ticks.get(tick)

    def sweep(self) -> None:
        for ticket in list(self.tickets.values()):
            if ticket.state == "claimed" and self.expired(ticket):
                self.reclaim(ticket)

    def expired(self, ticket: Ticket) -> bool:
        return ticket.lease_until < self.now

    def reclaim(self, ticket: Ticket) -> None:
        if ticket.cancel_requested:
            self.move(ticket, "reclaim", "cancelled")
        elif ticket.unbegun:
            self.give_back_unbegun(ticket)
            self.move(ticket, "reclaim", "ready")
        else:
            self.count_expiry(ticket)
            self.move(ticket, "reclaim", "ready" if self.may_retry(ticket) else "dead")

    def give_back_unbegun(self, ticket: Ticket) -> None:
        ticket.deliveries -= 1

    def count_expiry(self, ticket: Ticket) -> None:
        ticket.attempts += self.settings.on_expiry == "count"

    def move(self, ticket: Ticket, verb: str, state: str) -> None:
        self.write_row(ticket, verb, state)
        ticket.state, ticket.fence, ticket.due_at = state, 0, 0
        key = ticket.call.ordering_key
        if key is not None and self.frees_key(ticket) and self.heads.get(key) == ticket.id:
            del self.heads[key]

    def write_row(self, ticket: Ticket, verb: str, state: str) -> None:
        row = Row(verb, state, ticket.fence or None, self.now, state in FINAL)
        ticket.rows.append(row)

    def frees_key(self, ticket: Ticket) -> bool:
        return not ticket.open

    def dump(self) -> Iterator[Stored]:
        return (ticket.stored() for ticket in self.tickets.values())
