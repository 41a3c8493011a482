"""Reads how the messages that one waited for have ended, with their results."""

from collections.abc import Sequence

import msgspec

from penstock.broker.queue_cache import QueueCache
from penstock.broker.waiting.workflow_build import CANCEL_BATCH, WORKFLOW, split
from penstock.model.message import StoredMessage
from penstock.model.waiting import AwaitedOutcome, Edge
from penstock.model.workflow import Workflow
from penstock.rules.workflows import read_label
from penstock.store import Store

# Edges of a message that waited before its first delivery have no fence.
PUBLISHED = 0


async def read_ends(store: Store, id: int, edges: Sequence[Edge]) -> list[AwaitedOutcome]:
    results = await store.awaited_results(id) if edges else {}
    ended = {edge.awaited_id: edge.state for edge in edges if edge.state is not None}
    ids = dict.fromkeys(edge.awaited_id for edge in edges)
    return [AwaitedOutcome(each, ended.get(each), results.get(each)) for each in ids]


async def read_parents(store: Store, directory: QueueCache, id: int) -> list[AwaitedOutcome]:
    """Returns the ends of the nodes that a message of a workflow waited for, in their order."""
    edges = [edge for edge in await store.edges(id) if edge.number == PUBLISHED]
    edges.sort(key=lambda edge: edge.awaited_id)
    message = await find_message(store, id) if edges else None
    label = None if message is None else read_label(message.meta.headers)
    if message is None or label is None:
        return await read_ends(store, id, edges)
    if label.gated:
        # The gate was published after what is finished, and before its own piece.
        edges.pop()
    found = await read_ends(store, id, edges)
    if not label.mixed:
        return found
    scope = (await directory.get_by_id(message.queue_id)).scope
    name = f"{scope.tenant}/{scope.name}/{label.workflow}"
    order = await find_order(store, name, [each.id for each in found])
    return sorted(found, key=lambda each: order.get(each.id, 0))


async def find_message(store: Store, id: int) -> StoredMessage | None:
    return next((record.message for record in await store.get_many([id])), None)


async def find_order(store: Store, workflow: str, ids: Sequence[int]) -> dict[int, int]:
    """Returns the place of the node of each message.

    A redrive numbers the nodes of its workflow after it has published them. Until then, the
    messages themselves say which node they are.
    """
    document = await store.document(WORKFLOW, workflow)
    if document is not None:
        nodes = msgspec.json.decode(document.body, type=Workflow).nodes
        order = {node.id: place for place, node in enumerate(nodes)}
        if all(id in order for id in ids):
            return order
    order = {}
    for part in split(ids, CANCEL_BATCH):
        for record in await store.get_many(part):
            known = read_label(record.message.meta.headers)
            if known is not None:
                order[record.message.id] = int(known.place)
    return order
