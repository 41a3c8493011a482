"""The model's consumers: claim, settle, and what is said under a lease meanwhile."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from penstock.model.message import Leased, Moment, Settlement, State, Verb
from penstock.model.queue import DEAD_LETTER, QueueState
from penstock.model.store_types import AnswerKind
from tests.conformance.model import rules
from tests.conformance.model.items import Hold, Item, moment_after
from tests.conformance.model.ledger import Ledger
from tests.conformance.model.rules import Ruling


@dataclass(frozen=True)
class Ask:
    """A claim on one line: a queue, several as one, or the dead letters."""

    queues: tuple[str, ...]
    consumer: str
    limit: int
    lease: float
    types: tuple[str, ...] = ()
    begins: bool = False


@dataclass(frozen=True)
class Sight:
    """What a rule saw of a lease and decided; it holds only if nothing changed since."""

    id: int
    fence: int
    flags: tuple[bool, bool]
    verb: Verb
    ruling: Ruling
    expired_by: Moment | None = None


class Consuming(Ledger):
    def serves(self, queue: str) -> bool:
        state = self.queues[queue].state
        return state in (QueueState.ACTIVE, QueueState.DRAINING) and not self.scope_paused

    def claimable(self) -> bool:
        """Some queue has something to hand out."""
        ready = {item.queue.name for item in self.at("ready")}
        return any(map(self.serves, ready)) or bool(self.at("dead") and self.serves(DEAD_LETTER))

    def matching(self, ask: Ask) -> list[Item]:
        """What a claim could see, in its order; expired ones too."""
        if DEAD_LETTER in ask.queues:
            return sorted(self.of_types(self.at("dead"), ask), key=lambda item: item.dead_at)
        ready = [item for name in ask.queues for item in self.at("ready", name)]
        return sorted(self.of_types(ready, ask), key=lambda item: item.order)

    def of_types(self, items: list[Item], ask: Ask) -> list[Item]:
        return [item for item in items if not ask.types or item.draft.type in ask.types]

    def claim(self, ask: Ask, taken: Sequence[Leased], cleared: Collection[int]) -> None:
        """Checks a claim that handed out `taken`, having ended the expired ones `cleared`."""
        live = [item for item in self.matching(ask) if self.servable(item)]
        self.clear(set(cleared))
        self.check_order(ask, live, [leased.id for leased in taken], bool(cleared))
        if taken:
            self.check_fence(taken)
        for leased in taken:
            self.hand_out(ask, self.items[leased.id], leased)

    def servable(self, item: Item) -> bool:
        return item.place == "dead" or not item.expired(self.now)

    def clear(self, ids: set[int]) -> None:
        """Ends expired ready ones; the next of a key may then be ready, and expired as well."""
        while ids:
            found = {id for id in ids if self.items[id].place == "ready"}
            assert found, f"{ids} were ended by a claim, and were not ready"
            for id in found:
                assert self.items[id].expired(self.now), f"{id} is not expired"
                self.end(self.items[id], Verb.EXPIRE, State.EXPIRED)
            ids = ids - found

    def check_order(self, ask: Ask, live: list[Item], got: list[int], cleared: bool) -> None:
        """The first in line, in order. Clearing expired ones may shorten a batch or free keys."""
        first = [item.id for item in live][: ask.limit]
        if not cleared:
            assert got == first, f"{ask} got {got}, and first in line were {first}"
            return
        assert len(got) <= ask.limit
        known = {item.id for item in live}
        old = [id for id in got if id in known]
        assert old == first[: len(old)], f"claimed {got}, and first in line were {first}"
        freed = {item.id for item in self.matching(ask)} - known
        assert set(got) - known <= freed, f"claimed {got}, of which {known | freed} were ready"
        assert got or not ask.limit or not self.left(ask), "empty, and a message was ready"

    def left(self, ask: Ask) -> bool:
        return any(self.servable(item) for item in self.matching(ask))

    def check_fence(self, taken: Sequence[Leased]) -> None:
        fences = {leased.fence for leased in taken}
        assert len(fences) == 1, f"one claim, and the fences {fences}"
        assert min(fences) > self.last_fence, f"fence {fences} after {self.last_fence}"
        self.last_fence = min(fences)

    def hand_out(self, ask: Ask, item: Item, leased: Leased) -> None:
        self.lend(ask, item, leased.fence)
        told = (leased.attempts, leased.deliveries, leased.lease_until, leased.body, leased.type)
        draft, until = item.draft, item.held().until
        assert told == (item.attempts, item.deliveries, until, draft.body, draft.type)

    def lend(self, ask: Ask, item: Item, fence: int) -> None:
        """Puts a lease on it."""
        dead = item.place == "dead"
        item.deliveries += not dead
        length = item.draft.lease or ask.lease
        until = moment_after(self.now, length)
        unbegun = ask.begins and item.deliveries >= 2 and not dead
        item.hold = Hold(fence, ask.consumer, self.now, until, length, dead, unbegun)
        if not dead and item.first_claimed_at is None:
            item.first_claimed_at = self.now
        self.put(item, "lease")

    def refusal(self, id: int, fence: int, verb: Verb | None = None) -> AnswerKind | None:
        """Why this fence may not do this, or None if it is the current one."""
        item = self.items.get(id)
        if item is None:
            return AnswerKind.MISSING
        if item.hold is not None and item.hold.fence == fence:
            return None
        own = {row.verb for row in item.timeline if row.fence == fence}
        if verb in own:
            return AnswerKind.ALREADY
        return AnswerKind.LOST if own or item.hold is not None else AnswerKind.INVALID

    def outcome(self, id: int, fence: int, verb: Verb) -> State:
        """What a settlement under this fence led to."""
        rows = [row for row in self.items[id].timeline if (row.fence, row.verb) == (fence, verb)]
        (row,) = rows
        return row.state

    def complete(self, id: int, fence: int, result: bytes | None) -> AnswerKind:
        if (refusal := self.refusal(id, fence, Verb.COMPLETE)) is not None:
            return refusal
        item = self.items[id]
        ruling = rules.make_end(item, State.COMPLETED, None, None)
        if result is not None:
            kept = item.queue.settings.keep_results
            self.results[id] = (result, moment_after(self.now, kept))
        self.follow(item, Verb.COMPLETE, ruling)
        return AnswerKind.DONE

    def settle(self, id: int, fence: int, settlement: Settlement) -> AnswerKind:
        if (refusal := self.refusal(id, fence, settlement.verb)) is not None:
            return refusal
        return self.act(self.look(id, settlement))

    def look(self, id: int, settlement: Settlement, expired_by: Moment | None = None) -> Sight:
        item = self.items[id]
        ruling = rules.rule(item, settlement, self.now)
        return Sight(id, item.held().fence, flags(item), settlement.verb, ruling, expired_by)

    def act(self, sight: Sight) -> AnswerKind:
        """A decision taken on what was seen before."""
        if (refusal := self.refusal(sight.id, sight.fence, sight.verb)) is not None:
            return refusal
        item = self.items[sight.id]
        extended = sight.expired_by is not None and item.held().until >= sight.expired_by
        if extended or flags(item) != sight.flags:
            return AnswerKind.CHANGED
        self.follow(item, sight.verb, sight.ruling)
        return AnswerKind.DONE

    def extend(self, id: int, fence: int, lease: float) -> AnswerKind:
        if (refusal := self.refusal(id, fence)) is not None:
            return refusal
        hold = self.items[id].held()
        hold.until = max(hold.until, moment_after(self.now, lease))
        hold.length = lease
        self.touched.add(id)
        return AnswerKind.DONE

    def begin(self, id: int, fence: int) -> AnswerKind:
        if (refusal := self.refusal(id, fence)) is not None:
            return refusal
        hold = self.items[id].held()
        hold.unbegun = False
        hold.begun_at = self.now if hold.begun_at is None else hold.begun_at
        self.touched.add(id)
        return AnswerKind.DONE

    def progress(self, id: int, fence: int, percent: float | None, note: str | None) -> AnswerKind:
        if (refusal := self.refusal(id, fence)) is not None:
            return refusal
        hold = self.items[id].held()
        hold.percent = hold.percent if percent is None else percent
        hold.note = hold.note if note is None else note
        hold.begun_at = self.now if hold.begun_at is None else hold.begun_at
        self.touched.add(id)
        return AnswerKind.DONE


def flags(item: Item) -> tuple[bool, bool]:
    hold = item.held()
    return hold.unbegun, hold.cancel_requested
