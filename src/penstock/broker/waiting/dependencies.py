"""Publishes messages that wait for others by name, like jobs that depend on other jobs."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.publish import REFUSALS, Publisher, describe_refusal
from penstock.errors import InvalidInput, InvalidState, NotFound
from penstock.model.message import After, Draft, Flag
from penstock.model.store_types import Entry, Published
from penstock.model.workflow import NodeDraft
from penstock.rules.workflows import refuse_cycle

MAX_DEPENDENCIES = 1_000


class DependentDraft(Struct, frozen=True):
    """A draft, and the names in its queue of the messages that must complete first."""

    draft: Draft
    after: tuple[str, ...] = ()


async def publish_dependents(
    publisher: Publisher, given: Sequence[DependentDraft], *, scope: str = "default"
) -> list[Published]:
    """Publishes all or none. A name is looked up among the given drafts, then in the store."""
    afters = await find_dependencies(publisher, given, scope)
    refuse_cycle(
        [
            NodeDraft(draft=each.draft, after=() if after is None else after.entries)
            for each, after in zip(given, afters, strict=True)
        ]
    )
    entries = [
        hold(await publisher.admit(each.draft, scope=scope), after)
        for each, after in zip(given, afters, strict=True)
    ]
    published = await publisher.store.enqueue(entries, atomic=True)
    for each, outcome in zip(given, published, strict=True):
        if outcome.code in REFUSALS:
            raise REFUSALS[outcome.code](describe_refusal(outcome.code, each.draft))
    return published


async def find_dependencies(
    publisher: Publisher, given: Sequence[DependentDraft], scope: str
) -> list[After | None]:
    places = {(each.draft.queue, each.draft.name): place for place, each in enumerate(given)}
    return [await find_after(publisher, each, places, scope) for each in given]


async def find_after(
    publisher: Publisher,
    each: DependentDraft,
    places: dict[tuple[str, str | None], int],
    scope: str,
) -> After | None:
    if not each.after:
        return None
    if len(each.after) > MAX_DEPENDENCIES:
        raise InvalidInput(f"a job waits for at most {MAX_DEPENDENCIES:,} others")
    queue = await publisher.directory.get(publisher.tenant, scope, each.draft.queue)
    entries: list[int] = []
    ids: list[int] = []
    for name in dict.fromkeys(each.after):
        if (place := places.get((queue.name, name))) is not None:
            entries.append(place)
        elif (id := await publisher.store.named(queue.id, name)) is not None:
            ids.append(id)
        else:
            raise NotFound(f"no message named {name!r} in queue {queue.name!r}")
    return After(entries=tuple(entries), ids=tuple(ids))


def hold(entry: Entry, after: After | None) -> Entry:
    """Makes an entry wait before its first delivery."""
    if after is None:
        return entry
    return replace(keep_in_place(entry), after=after, flags=entry.flags | Flag.HELD)


def keep_in_place(entry: Entry) -> Entry:
    """Refuses a message that rules or subscriptions took from its queue, copied or ended."""
    unit = entry.unit
    if unit is None:
        return entry
    if unit.copies or unit.state is not None or unit.addressed_to != entry.queue_id:
        raise InvalidState(
            "a message that others wait for, or that waits for others, stays in its queue:"
            " rules and broadcast queues cannot route, copy or end it"
        )
    return replace(entry, unit=None)
