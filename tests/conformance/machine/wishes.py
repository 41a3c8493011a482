"""What may be asked of a store: drafts, settlements, and locks current, old and invented."""

from dataclasses import dataclass
from typing import Any, TypeVar

from hypothesis import strategies as st

from penstock.model.message import (
    Dedup,
    Draft,
    Fail,
    Moment,
    Nack,
    Park,
    Release,
    SettleCancelled,
    Settlement,
    SettleReject,
)
from penstock.model.queue import DEAD_LETTER
from tests.conformance.machine.queues import NAMES
from tests.conformance.model.items import moment_after

T = TypeVar("T")
Wish = dict[str, Any]
LockPair = tuple[int, int]
NEVER_GIVEN = 2**40
TYPES = ("mail", "report")

# Moments are seconds from now, until the draft is made.
RELATIVE = ("run_at", "expires_at", "deadline")
FEATURES: dict[str, list[Wish]] = {
    "later": [{"delay": 1.0}, {"delay": 3.0}, {"run_at": 10}, {"run_at": -1}],
    "expiry": [{"ttl": 3.0}, {"ttl": 0.0}, {"expires_at": 10}, {"ttl": 40.0}],
    "deadline": [{"deadline": 3}, {"deadline": 31}, {"deadline": 90}],
    "unique": [{"dedup": Dedup("x", None)}],
    "window": [{"dedup": Dedup("x", 10.0)}, {"dedup": Dedup("y", 3.0)}],
    "name": [{"name": name} for name in "nopqr"],
    "key": [{"ordering_key": key} for key in "aaaab"],
    "attempts": [{"max_attempts": 1}, {"max_attempts": 2}],
    "deliveries": [{"max_deliveries": 1}, {"max_deliveries": 2}],
    "lease": [{"lease": 4.0}, {"lease": 40.0}],
}


@dataclass(frozen=True)
class Theme:
    """What an example is about. A few things at a time meet more often than all at once."""

    queues: tuple[str, ...] = ()
    features: tuple[str, ...] = ()


def mostly(usual: T, *others: T) -> st.SearchStrategy[T]:
    return st.sampled_from([usual] * (1 + 2 * len(others)) + list(others))


themes = st.builds(
    Theme,
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True).map(tuple),
    st.lists(st.sampled_from(list(FEATURES)), min_size=2, max_size=5, unique=True).map(tuple),
)


def wishes(theme: Theme) -> st.SearchStrategy[Wish]:
    plain: dict[str, st.SearchStrategy[Any]] = {
        "queue": st.sampled_from(theme.queues),
        "type": st.sampled_from(TYPES),
        "priority": st.sampled_from([0, 0, 1, 5]),
        "body": mostly(b"one", b"two"),
    }
    always = ["key", "later"] if "keyed" in theme.queues else []
    names = dict.fromkeys([*theme.features, *always])
    chosen = [st.sampled_from([{}, {}, *FEATURES[name]]) for name in names]
    return st.tuples(st.fixed_dictionaries(plain), *chosen).map(together)


def without_dedup(wish: Wish) -> Wish:
    """A key is looked up where a draft is addressed to; the model has it where it arrives."""
    kept = (wish["queue"], wish["type"]) == ("gate", "mail")
    return wish if kept else {key: value for key, value in wish.items() if key != "dedup"}


def together(parts: tuple[Wish, ...]) -> Wish:
    return {name: value for part in parts for name, value in part.items()}


def draft_of(wish: Wish, now: Moment) -> Draft:
    moments = {name: moment_after(now, wish[name]) for name in RELATIVE if name in wish}
    if "run_at" in wish:
        moments["delay"] = 0
    return Draft(**wish | moments)


governed: st.SearchStrategy[Wish] = (
    st.tuples(
        st.fixed_dictionaries(
            {
                "queue": st.sampled_from(["gate", "events"]),
                "type": st.sampled_from(TYPES),
                "body": mostly(b"one", b"two"),
            }
        ),
        st.sampled_from([{}, {}, *FEATURES["unique"], *FEATURES["window"]]),
    )
    .map(together)
    .map(without_dedup)
)
settlements: st.SearchStrategy[Settlement] = st.sampled_from(
    [
        Nack("broken"),
        Nack("later", delay=3.0),
        Nack("at once", delay=0.0, reason="TIMEOUT"),
        Nack("much later", delay=100.0),
        Nack("limited", max_attempts=2, max_total=8.0),
        SettleReject("bad"),
        SettleReject("bad"),
        SettleReject("bad"),
        Release(),
        Fail("no use"),
        Park(),
        SettleCancelled("stopped"),
    ]
)
# A result is a completion.
endings: st.SearchStrategy[Settlement | bytes] = settlements | st.just(b"42")


def batches_of(world: Any) -> st.SearchStrategy[list[Wish]]:
    return st.lists(wishes(world.theme), min_size=1, max_size=6)


def lines_of(world: Any) -> st.SearchStrategy[list[str]]:
    """All queues of the example with its dead letters, in some order; or one of them."""
    names = [*world.theme.queues, DEAD_LETTER]
    return st.permutations(names) | st.sampled_from(names).map(lambda name: [name])


def locks_of(world: Any) -> st.SearchStrategy[LockPair]:
    """Mostly current ones; then old ones, invented ones, and one for no message at all."""
    old = world.locks[-8:]
    invented = [(id, NEVER_GIVEN) for id, _ in old[-2:]]
    nothing = (NEVER_GIVEN, world.model.last_fence)
    return st.sampled_from([*world.held() * 3, *old, *invented, nothing])


def choose_held(world: Any) -> st.SearchStrategy[LockPair]:
    return st.sampled_from(world.held())


def ids_of(world: Any) -> st.SearchStrategy[int]:
    return st.sampled_from(list(world.model.items))


def choose_ended(world: Any) -> st.SearchStrategy[int]:
    """Mostly dead ones, then finished ones; any other is refused."""
    # A broadcast is redriven in its subscriptions.
    items = [item for item in world.model.items.values() if item.queue.name != "events"]
    dead = [item.id for item in items if item.place == "dead"]
    finished = [item.id for item in items if item.place is None]
    return st.sampled_from([*dead * 4, *finished, *[item.id for item in items[-2:]], NEVER_GIVEN])


def waiting_of(world: Any) -> st.SearchStrategy[int]:
    return st.sampled_from(world.model.waiting_ids())


batches: st.SearchStrategy[list[Wish]] = st.runner().flatmap(batches_of)
lines: st.SearchStrategy[list[str]] = st.runner().flatmap(lines_of)
locks: st.SearchStrategy[LockPair] = st.runner().flatmap(locks_of)
held: st.SearchStrategy[LockPair] = st.runner().flatmap(choose_held)
ids: st.SearchStrategy[int] = st.runner().flatmap(ids_of)
ended: st.SearchStrategy[int] = st.runner().flatmap(choose_ended)
waiting: st.SearchStrategy[int] = st.runner().flatmap(waiting_of)
