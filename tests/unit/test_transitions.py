"""No sequence of operations leaves the transition table of the contract."""

from typing import TypeAlias

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from penstock.model.message import (
    FINAL,
    Fail,
    Flag,
    Meta,
    Nack,
    Park,
    Reclaim,
    Release,
    SettleCancelled,
    Settlement,
    SettleReject,
    State,
    Verb,
    keep_lasting_flags,
)
from penstock.model.settings import PRESETS, QueueSettings
from penstock.model.store_types import Move
from penstock.rules.backoff import compute_limits
from penstock.rules.lifecycle import settle
from tests.unit.leases import SECOND, lease

READY, SCHEDULED, CLAIMED, DEAD = State.READY, State.SCHEDULED, State.CLAIMED, State.DEAD
FAILED, CANCELLED = State.FAILED, State.CANCELLED

# semantics.md section 3, the rows from `claimed` that a rule decides: which end each verb may
# lead to, with what is added to attempts and to deliveries.
Ends: TypeAlias = set[tuple[State, int, int]]
TABLE: dict[Verb, Ends] = {
    Verb.NACK: {(SCHEDULED, 1, 0), (READY, 1, 0), (DEAD, 1, 0)},
    Verb.FAIL: {(FAILED, 1, 0)},
    Verb.REJECT: {(DEAD, 1, 0)},
    Verb.RELEASE: {(READY, 0, -1)},
    Verb.PARK: {(SCHEDULED, 0, -1)},
    Verb.CANCEL: {(CANCELLED, 0, 0)},
    Verb.RECLAIM: {(READY, 0, 0), (DEAD, 0, 0)},
}
COUNTED_RECLAIM: Ends = {(READY, 1, 0), (DEAD, 1, 0)}
BACKED_OFF_RECLAIM: Ends = {(SCHEDULED, 1, 0), *COUNTED_RECLAIM}
UNBEGUN_RECLAIM: Ends = {(READY, 0, -1)}
AS_USUAL_WHEN_CANCELLED = {Verb.FAIL, Verb.REJECT}
AS_USUAL_FROM_DEAD = {Verb.FAIL}
# The places outside a rule's reach: where a ticket may go without a settlement.
BETWEEN: dict[str, tuple[set[State], State]] = {
    "promote": ({SCHEDULED}, READY),
    "expire": ({SCHEDULED, READY}, State.EXPIRED),
    "cancel": ({SCHEDULED, READY}, CANCELLED),
    "claim": ({READY}, CLAIMED),
    "claim_dead": ({DEAD}, CLAIMED),
    "redrive": ({DEAD}, READY),
    "complete": ({CLAIMED}, State.COMPLETED),
}
REASONS = {
    Verb.NACK: {"retries_exhausted", "max_deliveries"},
    Verb.REJECT: {"rejected"},
    Verb.RECLAIM: {"retries_exhausted", "max_deliveries"},
}

DELAY = st.none() | st.floats(0, 1000)
SETTLEMENTS: st.SearchStrategy[Settlement] = st.one_of(
    st.builds(Nack, error=st.just("x"), delay=DELAY),
    st.sampled_from(
        [Fail("x"), SettleReject("x"), Release(), Park(), SettleCancelled("x"), Reclaim()]
    ),
)
LIMIT = st.none() | st.integers(1, 6)


class Ticket(RuleBasedStateMachine):
    """One message in one queue, and everything that may happen to it."""

    settings: QueueSettings

    def __init__(self) -> None:
        super().__init__()
        self.lease = lease(attempts=0, deliveries=0)
        self.state = SCHEDULED
        self.reason: str | None = None

    @initialize(
        settings=st.sampled_from(list(PRESETS.values())),
        max_total=st.none() | st.floats(0, 600),
        meta=st.builds(Meta, max_attempts=LIMIT, max_deliveries=LIMIT),
        flags=st.sampled_from([0, Flag.KEYED, Flag.UNIQUE | Flag.OWN_LEASE]),
    )
    def publish(
        self, settings: QueueSettings, max_total: float | None, meta: Meta, flags: int
    ) -> None:
        self.settings = replace(settings, backoff=replace(settings.backoff, max_total=max_total))
        self.lease = replace(self.lease, meta=meta, flags=flags, first_claimed_at=self.lease.now)

    @precondition(lambda self: self.state in FINAL)
    @rule()
    def publish_another(self) -> None:
        self.lease = replace(self.lease, attempts=0, deliveries=0, first_claimed_at=self.lease.now)
        self.state = SCHEDULED

    @rule(operation=st.sampled_from(["promote", "expire", "cancel", "complete", "redrive"]))
    def go_between(self, operation: str) -> None:
        places, end = BETWEEN[operation]
        if self.state not in places:
            return
        if operation == "redrive":
            now = self.lease.now
            self.lease = replace(self.lease, attempts=0, deliveries=0, first_claimed_at=now)
        self.state = end

    @precondition(lambda self: self.state is READY)
    @rule(begins=st.booleans())
    def claim(self, begins: bool) -> None:
        deliveries = self.lease.deliveries + 1
        unbegun = Flag.UNBEGUN if begins and deliveries >= 2 else 0
        self.hold(deliveries, unbegun)

    @precondition(lambda self: self.state is DEAD)
    @rule()
    def claim_dead(self) -> None:
        self.hold(self.lease.deliveries, Flag.FROM_DEAD)

    def hold(self, deliveries: int, flags: int) -> None:
        flags |= keep_lasting_flags(self.lease.flags)
        fence = self.lease.fence + 1
        self.lease = replace(
            self.lease, fence=fence, deliveries=deliveries, flags=flags, dead_reason=self.reason
        )
        self.state = CLAIMED

    @precondition(lambda self: self.state is CLAIMED)
    @rule()
    def begin(self) -> None:
        self.lease = replace(self.lease, flags=self.lease.flags & ~Flag.UNBEGUN)

    @precondition(lambda self: self.state is CLAIMED)
    @rule()
    def request_cancel(self) -> None:
        self.lease = replace(self.lease, flags=self.lease.flags | Flag.CANCEL_REQUESTED)

    @rule(seconds=st.integers(1, 300))
    def wait(self, seconds: int) -> None:
        self.lease = replace(self.lease, now=self.lease.now + seconds * SECOND)

    @precondition(lambda self: self.state is CLAIMED)
    @rule(settlement=SETTLEMENTS)
    def settle(self, settlement: Settlement) -> None:
        held = self.lease
        move = settle(held, settlement, self.settings)
        end = (move.state, move.attempts - held.attempts, move.deliveries - held.deliveries)
        assert end in self.allowed(settlement.verb)
        assert (move.id, move.fence, move.seen_flags) == (held.id, held.fence, held.flags)
        assert move.verb is settlement.verb
        assert (move.delay > 0) == (move.state is SCHEDULED)
        assert move.frees == (move.state is DEAD or move.state in FINAL)
        assert move.expired_by == (held.now if settlement == Reclaim() else None)
        if move.state is DEAD:
            assert move.reason in self.reasons(settlement.verb)
        self.follow(move)

    def allowed(self, verb: Verb) -> Ends:
        flags = self.lease.flags
        if flags & Flag.FROM_DEAD and verb not in AS_USUAL_FROM_DEAD:
            return {(DEAD, 0, 0)}
        if flags & Flag.CANCEL_REQUESTED and verb not in AS_USUAL_WHEN_CANCELLED:
            return {(CANCELLED, 0, 0)}
        if verb is Verb.RECLAIM and flags & Flag.UNBEGUN:
            return UNBEGUN_RECLAIM
        if verb is Verb.RECLAIM and self.settings.retry.on_expiry != "keep":
            backs_off = self.settings.retry.on_expiry == "backoff"
            return BACKED_OFF_RECLAIM if backs_off else COUNTED_RECLAIM
        return TABLE[verb]

    def reasons(self, verb: Verb) -> set[str]:
        if self.lease.flags & Flag.FROM_DEAD:
            return {self.lease.dead_reason or ""}
        return REASONS[verb]

    def follow(self, move: Move) -> None:
        parked = self.lease.parked + (move.verb is Verb.PARK)
        self.lease = replace(
            self.lease,
            attempts=move.attempts,
            deliveries=move.deliveries,
            flags=keep_lasting_flags(self.lease.flags),
            parked=parked,
            dead_reason=None,
        )
        self.state, self.reason = move.state, move.reason

    @invariant()
    def what_waits_may_run_again(self) -> None:
        if self.state in (READY, SCHEDULED):
            max_attempts, max_deliveries = compute_limits(self.lease.meta, self.settings)
            counts_attempts = self.settings.retry.count == "attempts"
            used = self.lease.attempts if counts_attempts else self.lease.deliveries
            assert used < max_attempts
            assert self.lease.deliveries < max_deliveries

    @invariant()
    def no_counter_is_below_zero(self) -> None:
        assert self.lease.attempts >= 0
        assert self.lease.deliveries >= 0


TestTicket = Ticket.TestCase
