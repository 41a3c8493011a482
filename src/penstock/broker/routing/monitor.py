"""Counts what rules do in this process, and suspends rules that fire too often."""

import time
from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from penstock.model.routing import StoredRule
from penstock.rules.routing import Routing

WINDOW_S = 60.0
# The first fault of a rule in a window is logged, and then one in this many.
LOG_EVERY = 1_000
# Pairs of rule and queue whose loops are kept until an agent records them.
MAX_LOOPS = 1_000
RuleKey = tuple[str, str, str]


class Suspension(Struct, frozen=True):
    """A rule that this process has suspended, until the store has recorded it."""

    stored: StoredRule
    reason: str


class RuleMonitor:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.window_ends = 0.0
        self.firings: Counter[RuleKey] = Counter()
        self.pending: dict[RuleKey, Suspension] = {}
        # Since this process started, by what happened and the name of the rule.
        self.totals: Counter[tuple[str, str]] = Counter()
        # Loops that an agent has not recorded yet, by rule and id of the queue.
        self.loops: Counter[tuple[str, int]] = Counter()

    def observe(self, routing: Routing) -> None:
        """Counts the outcome of one draft."""
        for rule in routing.fired:
            self.totals["fired", rule.name] += 1
            self._count_firing(rule.stored)
        for fault in routing.faults:
            self._report("rule_failed", fault.rule, error=fault.text)
        for name in routing.missing:
            self.totals["missing_field", name] += 1
        for name, queue_id in routing.loops:
            self._report("routing_loop", name)
            if len(self.loops) < MAX_LOOPS:
                self.loops[name, queue_id] += 1

    def take_loops(self) -> dict[tuple[str, int], int]:
        """Returns how often rules were stopped at a queue since the last call."""
        taken = dict(self.loops)
        self.loops.clear()
        return taken

    def _report(self, event: str, rule: str, **more: str) -> None:
        if self.totals[event, rule] % LOG_EVERY == 0:
            log_error(event, rule=rule, **more)
        self.totals[event, rule] += 1

    def _count_firing(self, stored: StoredRule) -> None:
        if self.clock() >= self.window_ends:
            self.firings.clear()
            self.window_ends = self.clock() + WINDOW_S
        key = stored.key
        self.firings[key] += 1
        if self.firings[key] > stored.rule.limit:
            self.suspend(stored, f"it fired more than {stored.rule.limit} times in a minute")

    def suspend(self, stored: StoredRule, reason: str) -> None:
        """Stops applying a rule here at once, and everywhere when the store knows it."""
        if stored.key not in self.pending:
            self.pending[stored.key] = Suspension(stored, reason)
            log_error("rule_suspended", rule=stored.rule.name, scope=stored.rule.scope,
                      reason=reason)  # fmt: skip

    def is_suspended(self, stored: StoredRule) -> bool:
        return bool(stored.suspended) or stored.key in self.pending

    def list_skipped(self) -> frozenset[RuleKey]:
        """Returns the suspended rules that are not applied any more."""
        return frozenset(
            key for key, each in self.pending.items() if each.stored.rule.on_limit == "skip"
        )


def log_error(event: str, **fields: object) -> None:
    """Imports the logger at the first error, so that commands start fast."""
    import structlog

    structlog.get_logger().error(event, **fields)
