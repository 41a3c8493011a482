"""Plans the changes of a topology: steps, owners and refusals."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from penstock.broker.documents import decode_document
from penstock.broker.topology.items import StoredTopology, TargetTopology, TopologyItem
from penstock.errors import Conflict, InvalidInput
from penstock.model.message import Moment
from penstock.model.topology import TOPOLOGY

StepKind: TypeAlias = Literal["create", "change", "adopt", "remove", "leave", "keep"]
ItemId: TypeAlias = tuple[str, str, str]
MAX_ERRORS = 20
# Switches of operators in their usual position, and one that a file cannot have.
LEFT_OUT = (("paused", False), ("enabled", True), ("archived", True))


class FieldChange(Struct, frozen=True):
    """A field that differs. None means that it has its default."""

    field: str
    old: Any
    new: Any


class TopologyStep(Struct, frozen=True):
    """One step of a topology plan.

    "leave" is an object that the file no longer declares, without `prune`. "keep" is a queue that
    cannot be removed, because it has unfinished messages.
    """

    step: StepKind
    kind: str
    scope: str
    key: str
    changes: tuple[FieldChange, ...] = ()


class TopologyPlan(Struct, frozen=True):
    """The changes of a topology, planned or applied. `unchanged` counts the other objects."""

    name: str
    steps: tuple[TopologyStep, ...] = ()
    unchanged: int = 0
    applied: bool = False

    @property
    def changes(self) -> bool:
        return any(each.step not in ("leave", "keep") for each in self.steps)


class Ownership(Struct, frozen=True):
    """The objects that a topology made or adopted: kind, scope and key."""

    objects: tuple[ItemId, ...]
    applied_at: Moment


def find_owners(stored: StoredTopology) -> dict[ItemId, str]:
    return {
        id: name.partition("/")[2]
        for name, document in stored.documents.get(TOPOLOGY, {}).items()
        for id in decode_document(document, Ownership).objects
    }


def refuse_foreign(
    name: str,
    target: TargetTopology,
    before: Mapping[ItemId, TopologyItem],
    owners: Mapping[ItemId, str],
    adopt: bool,
) -> None:
    """Refuses objects that exist and that the topology does not own."""
    foreign = [item for id, item in target.items.items() if id in before and owners.get(id) != name]
    if adopt or not foreign:
        return
    details = tuple(
        (str(item), f"belongs to topology {owner!r}" if owner else "exists already")
        for item in foreign[:MAX_ERRORS]
        for owner in (owners.get(item.id),)
    )
    said = "; ".join(f"{where} {why}" for where, why in details)
    error = Conflict(f"topology {name!r} does not own what it declares: {said}; --adopt takes over")
    error.details = details
    raise error


def make_step(item: TopologyItem, before: TopologyItem | None, owned: bool) -> TopologyStep | None:
    old = {} if before is None else before.fields
    changes = tuple(
        FieldChange(field, old.get(field), item.fields.get(field))
        for field in dict.fromkeys([*old, *item.fields])
        if old.get(field) != item.fields.get(field)
    )
    if before is None:
        return TopologyStep("create", *item.id, changes)
    if changes:
        return TopologyStep("change", *item.id, changes)
    return None if owned else TopologyStep("adopt", *item.id)


def make_table(item: TopologyItem) -> dict[str, Any]:
    """Returns the table of a file. TOML has no null, so such a body is written as JSON text."""
    fields = dict(item.fields)
    if "body" in fields and b"null" in (text := msgspec.json.encode(fields["body"])):
        fields.pop("body")
        fields["body_json"] = text.decode()
    if item.kind not in ("scope", "role") and item.scope != "default":
        fields["scope"] = item.scope
    return {key: value for key, value in fields.items() if (key, value) not in LEFT_OUT}


def make_file_error(name: str, problems: Sequence[tuple[str, str]]) -> InvalidInput:
    shown = problems[:MAX_ERRORS]
    more = f"; and {len(problems) - len(shown)} more" if len(problems) > len(shown) else ""
    said = "; ".join(f"{place}: {text}" for place, text in shown)
    error = InvalidInput(f"topology {name!r}: {said}{more}")
    error.details = tuple(shown)
    return error
