"""Counts the messages that match a filter: by the counters of queues if they decide."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from penstock.broker.search import Search, select_queues
from penstock.model.filter import Candidate, Node
from penstock.model.message import PLACE_STATES, State
from penstock.model.queue import Queue
from penstock.rules.filter_match import judge, list_fields, may_match
from penstock.rules.filter_parser import parse_filter
from penstock.rules.masking import Reveals, check_filter
from penstock.store import Store

MAX_COUNTED = 10_000
# The fields that counters distinguish, and the states that they count exactly.
COUNTED_FIELDS = ("queue", "scope", "state")


class MatchCount(Struct, frozen=True):
    """`exact` is false if there may be more."""

    count: int
    exact: bool


async def count_matches(
    store: Store,
    filter: str,
    queues: Sequence[Queue],
    depths: Mapping[tuple[int, str], int],
    reveals: Reveals,
) -> MatchCount:
    """Counts messages in the queues that the caller may read. `depths` are their counters."""
    now = await store.now()
    node = parse_filter(filter, now)
    fitting = select_queues(node, queues)
    if not fitting:
        return MatchCount(0, exact=True)
    check_filter(node, fitting.values(), reveals)
    if is_counted(node):
        return MatchCount(sum_depths(node, fitting, depths), exact=True)
    found = await Search(store, node, fitting, MAX_COUNTED, brief=True).run(now, None)
    return MatchCount(len(found.records), found.exact)


def is_counted(node: Node) -> bool:
    """True if counters know all that can match."""
    if any(term.field not in COUNTED_FIELDS for term in list_fields(node)):
        return False
    return not any(
        may_match(node, Candidate(state=state), ("state",))
        for state in State
        if state not in PLACE_STATES.values()
    )


def sum_depths(
    node: Node, queues: Mapping[int, Queue], depths: Mapping[tuple[int, str], int]
) -> int:
    return sum(
        depths.get((queue.id, place), 0)
        for queue in queues.values()
        for place, state in PLACE_STATES.items()
        if judge(
            node,
            Candidate(queue=queue.name, scope=queue.scope.name, state=state),
            COUNTED_FIELDS,
        )
    )
