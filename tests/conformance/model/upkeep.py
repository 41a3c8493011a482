"""The model's agents: leases that ran out, what is due, what is expired."""

from penstock.model.message import Moment, State, Verb
from tests.conformance.model.items import Hold, Item
from tests.conformance.model.ledger import Ledger


class Upkeep(Ledger):
    def run_out(self) -> list[Item]:
        """Leases that are over, the longest over first."""
        over = [item for item in self.at("lease") if self.over(item.held())]
        return sorted(over, key=lambda item: item.held().until)

    def over(self, hold: Hold) -> bool:
        return hold.until < self.now

    def due(self) -> list[Item]:
        """Scheduled by time, not by their key, in the order they are due."""
        waiting = [item for item in self.at("scheduled") if item.turn is None and not item.waits]
        return sorted(waiting, key=lambda item: (item.due_at, item.id))

    def promote(self, limit: int) -> Moment | None:
        """Says when the next one is due."""
        for item in self.due()[:limit]:
            if item.due_at > self.now:
                break
            if item.key is None or item.heads_key:
                self.put(item, "ready")
            else:
                self.get_in_line(item, (item.line_id, 0))
        return min((item.due_at for item in self.due()), default=None)

    def expirable(self) -> list[Item]:
        waiting = self.at("ready") + self.at("scheduled")
        return [item for item in waiting if item.expired(self.now)]

    def expire(self, items: list[Item]) -> None:
        for item in items:
            self.end(item, Verb.EXPIRE, State.EXPIRED)
