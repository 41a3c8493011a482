"""Time passes for the store and for the model, and the agents repair both."""

from collections.abc import Callable, Iterable

from penstock.model.message import Reclaim, State
from tests.conformance.machine.consumers import Consumers
from tests.conformance.machine.wishes import LockPair


class Keepers(Consumers):
    def travel(self, seconds: float) -> None:
        self.run(self.engine.travel(seconds))
        self.model.now = self.run(self.store.now())

    def sweep(self, limit: int = 100, meanwhile: Iterable[Callable[[LockPair], None]] = ()) -> None:
        """Looks for leases that ran out, and reclaims what is still as it was."""
        over = {item.id for item in self.model.run_out()}
        sweep = self.run(self.store.expired_leases(limit))
        found = [lease.id for lease in sweep.leases]
        assert len(found) == len(set(found)) == min(limit, len(over))
        assert set(found) <= over
        decisions = [self.decision(lease, Reclaim()) for lease in sweep.leases]
        for act, lease in zip(meanwhile, sweep.leases, strict=False):
            act((lease.id, lease.fence))
        if decisions:
            self.carry_out(decisions)

    def promote(self, limit: int = 100) -> None:
        promoted = self.run(self.store.promote(limit))
        next_at = self.model.promote(limit)
        # A store may name a moment at which only a held message is due.
        due = [each for each in (next_at, self.model.next_look()) if each is not None]
        assert promoted.now == self.model.now
        assert promoted.next_at in (next_at, min(due, default=None))

    def expire(self, limit: int = 100) -> None:
        """Up to `limit` of them; which ones is the store's affair."""
        expirable = self.model.expirable()
        count = self.run(self.store.expire(limit))
        ended = [item for item in expirable if self.state_of(item) is State.EXPIRED]
        assert count == len(ended) <= limit
        self.model.expire(ended)
        # One that stood behind an expired one in its key's line may have to wait for the next.
        keys = {(item.queue.name, item.key) for item in ended}
        left = [item for item in expirable if item not in ended]
        assert len(ended) == limit or all((item.queue.name, item.key) in keys for item in left)

    def sweep_keys(self, limit: int = 100) -> None:
        """Old dedup keys and results only take room: sweeping them makes no difference."""
        self.run(self.store.sweep_keys(limit))
