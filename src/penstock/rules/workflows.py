"""Rules: checks the graph of a workflow, and derives its state from those of its nodes."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import msgspec

from penstock.errors import InvalidInput
from penstock.model.message import After, State
from penstock.model.workflow import NodeDraft, Workflow, WorkflowNode, WorkflowState
from penstock.rules.plurals import format_count
from penstock.rules.validation import check_text

MAX_NODES = 10_000
MAX_EDGES = 20_000
MAX_BYTES = 64 * 1_048_576
MAX_LABEL = 200
NODE_HEADER = "penstock-node"
encode = msgspec.json.Encoder(order="sorted").encode


class NodeLabel(NamedTuple):
    """A header of each message of a workflow, which names its node.

    `gated` if the last message that it waits for is a gate. `mixed` if the ids of those it waits
    for are not in the order of their nodes.
    """

    workflow: str
    place: str
    gated: bool = False
    mixed: bool = False

    def encode(self) -> str:
        flags = "g" * self.gated + "m" * self.mixed
        return ":".join((self.workflow, self.place, flags))


def read_label(headers: Mapping[str, str] | None) -> NodeLabel | None:
    workflow, _, rest = (headers or {}).get(NODE_HEADER, "").partition(":")
    place, _, flags = rest.partition(":")
    return NodeLabel(workflow, place, "g" in flags, "m" in flags) if place else None


def make_label(
    workflow: str, place: int, after: Sequence[int], ranks: Sequence[int], *, gated: bool
) -> str:
    """Labels the message of a node. `ranks` has the place of each node in the order of ids."""
    order = [ranks[parent] for parent in sorted(after)]
    return NodeLabel(workflow, str(place), gated, mixed=order != sorted(order)).encode()


def rank_nodes(ordered: Sequence[int]) -> list[int]:
    """Returns the place of each node in the order in which they are published."""
    ranks = [0] * len(ordered)
    for rank, place in enumerate(ordered):
        ranks[place] = rank
    return ranks


def needs_gate(after: Sequence[int], published: Collection[int]) -> bool:
    """True if a node waits for none of the nodes that are published with it in pieces."""
    return not any(parent in published for parent in after)


def check_graph(nodes: Sequence[NodeDraft]) -> None:
    """Refuses a graph that is too large, has a cycle, or names what it does not have."""
    if not nodes:
        raise InvalidInput("a workflow needs at least one node")
    if len(nodes) > MAX_NODES:
        raise InvalidInput(f"the workflow has {len(nodes):,} nodes; the limit is {MAX_NODES:,}")
    edges = sum(len(node.after) for node in nodes)
    if edges > MAX_EDGES:
        raise InvalidInput(f"the workflow has {edges:,} edges; the limit is {MAX_EDGES:,}")
    size = sum(len(node.draft.body) for node in nodes)
    if size > MAX_BYTES:
        raise InvalidInput(f"the bodies have {size:,} bytes; the limit is {MAX_BYTES:,}")
    for place, node in enumerate(nodes):
        check_node(place, node, len(nodes))
    refuse_cycle(nodes)


def check_node(place: int, node: NodeDraft, count: int) -> None:
    check_text("label", node.label, MAX_LABEL, least=0)
    for parent in node.after:
        if not 0 <= parent < count:
            raise InvalidInput(f"node {place} waits for node {parent}, which does not exist")
    if len(set(node.after)) < len(node.after):
        raise InvalidInput(f"node {place} lists a node twice in `after`")
    if node.policy == "any" and not 1 <= node.need <= len(node.after):
        raise InvalidInput(
            f"node {place}: need is {node.need}, but it waits for"
            f" {format_count(len(node.after), 'node')}"
        )
    draft = node.draft
    for field, given in (("name", draft.name), ("dedup", draft.dedup)):
        if given is not None:
            raise InvalidInput(
                f"node {place} has a {field}; give the workflow a key, its nodes have none"
            )


def refuse_cycle(nodes: Sequence[NodeDraft]) -> None:
    ordered = set(sort_nodes(nodes))
    if len(ordered) < len(nodes):
        place = next(place for place in range(len(nodes)) if place not in ordered)
        raise InvalidInput(f"node {place} waits for itself, directly or through other nodes")


def sort_nodes(nodes: Sequence[NodeDraft | WorkflowNode]) -> list[int]:
    """Orders nodes so that each comes after those it waits for. Leaves out cycles.

    Otherwise they keep their order.
    """
    waits = [len(node.after) for node in nodes]
    children = list_children(nodes)
    ordered: list[int] = []
    free = [place for place, count in enumerate(waits) if not count]
    heapify(free)
    while free:
        place = heappop(free)
        ordered.append(place)
        for child in children[place]:
            waits[child] -= 1
            if not waits[child]:
                heappush(free, child)
    return ordered


def compute_digest(name: str, nodes: Sequence[NodeDraft]) -> str:
    shapes = [
        (
            node.draft.queue, node.draft.type, node.draft.body, node.after, node.policy, node.need,
            node.on_dead,
        )
        for node in nodes
    ]  # fmt: skip
    return sha256(encode((name, shapes))).hexdigest()


def make_after(node: NodeDraft | WorkflowNode) -> After | None:
    """Returns what a node waits for, by the index of entries that are published with it."""
    if not node.after:
        return None
    return After(entries=node.after, policy=node.policy, need=node.need, on_dead=node.on_dead)


def find_state(workflow: Workflow, states: Sequence[State | None]) -> WorkflowState:
    """Returns the state of a workflow. A node that left the store counts as it was last counted."""
    left = [state for state in states if state is not None]
    unfinished = [state for state in left if not state.final]
    if workflow.cancelled and all(state is State.DEAD for state in unfinished):
        # Dead letters stay when their workflow is cancelled.
        done = left and all(state is State.COMPLETED for state in left)
        return WorkflowState.COMPLETED if done else WorkflowState.CANCELLED
    if not unfinished:
        if any(state in (State.FAILED, State.EXPIRED, State.CANCELLED) for state in left):
            return WorkflowState.FAILED
        return WorkflowState.COMPLETED
    return WorkflowState.BLOCKED if is_blocked(workflow, states) else WorkflowState.RUNNING


def is_blocked(workflow: Workflow, states: Sequence[State | None]) -> bool:
    """True if each unfinished node is dead, or waits for one that is, directly or not."""
    dead = [place for place, state in enumerate(states) if state is State.DEAD]
    stuck = spread(workflow.nodes, dead, [state is State.SCHEDULED for state in states])
    return bool(dead) and all(
        state is None or state.final or place in stuck for place, state in enumerate(states)
    )


def spread(
    nodes: Sequence[NodeDraft | WorkflowNode], first: Sequence[int], reached: Sequence[bool]
) -> set[int]:
    """Returns the first nodes, and those that wait for them through nodes that can be reached."""
    children = list_children(nodes)
    found, rest = set(first), list(first)
    while rest:
        for child in children[rest.pop()]:
            if reached[child] and child not in found:
                found.add(child)
                rest.append(child)
    return found


def list_children(nodes: Sequence[NodeDraft | WorkflowNode]) -> list[list[int]]:
    children: list[list[int]] = [[] for _ in nodes]
    for place, node in enumerate(nodes):
        for parent in node.after:
            children[parent].append(place)
    return children


def count_states(states: Sequence[State | None]) -> dict[str, int]:
    return dict(Counter("gone" if state is None else state.value for state in states))


def list_to_repeat(workflow: Workflow, states: Sequence[State | None]) -> list[int]:
    """Lists the nodes that a redrive publishes again: failed ones, and what waits for them."""
    failed = [
        place
        for place, state in enumerate(states)
        if state in (State.FAILED, State.EXPIRED, State.CANCELLED)
    ]
    return sorted(
        spread(workflow.nodes, failed, [state is not State.COMPLETED for state in states])
    )
