"""Applies topologies: declares scopes, queues, schedules, rules, schemas and access in one step."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from msgspec.structs import replace

from penstock.broker.documents import list_documents
from penstock.broker.queues import QueueAdmin, check_anomalies
from penstock.broker.routing.admin import RuleAdmin
from penstock.broker.schemas.registry import SchemaRegistry
from penstock.broker.topology.access import CheckGrants, RoleKind, TrustKind
from penstock.broker.topology.documents import BindingKind, RuleKind, SchemaKind
from penstock.broker.topology.features import (
    AlertKind,
    HumanWebhookKind,
    PatternKind,
    SubscriptionKind,
)
from penstock.broker.topology.items import (
    CheckUrl,
    StoredTopology,
    TargetTopology,
    TopologyBuilder,
    TopologyItem,
    TopologyKind,
)
from penstock.broker.topology.kinds import CheckDraft, QueueKind, ScheduleKind, ScopeKind
from penstock.broker.topology.plan import (
    ItemId,
    Ownership,
    StepKind,
    TopologyPlan,
    TopologyStep,
    find_owners,
    make_file_error,
    make_step,
    make_table,
    refuse_foreign,
)
from penstock.errors import Forbidden, NotFound, PenstockError
from penstock.model.message import TICKET_PLACES, Draft
from penstock.model.queue import QueueState
from penstock.model.topology import TOPOLOGY
from penstock.rules.callbacks import check_url
from penstock.rules.topology_file import TopologyFile, read_topology
from penstock.rules.validation import clip

Source: TypeAlias = bytes | str | Mapping[str, Any]
# They give rights away: a webhook may receive links that decide.
ACCESS_KINDS = ("role", "trust", "human_webhook")
NEEDS_ACCESS = "declaring roles, trusts and human webhooks requires the right access"


def allow_draft(scope: str, draft: Draft) -> None:
    """Lets a caller on the store itself schedule every message."""


class Topology:
    """The topologies of one tenant, as one caller may apply them.

    `check_grants` refuses roles and trusts that the caller may not give; None refuses all.
    `check_url` refuses addresses that the service does not call, and `check_draft` messages of
    schedules that the caller may not publish.
    """

    def __init__(
        self,
        admin: QueueAdmin,
        rules: RuleAdmin,
        schemas: SchemaRegistry,
        check_grants: CheckGrants | None,
        check_url: CheckUrl = check_url,
        check_draft: CheckDraft = allow_draft,
    ) -> None:
        self.admin = admin
        self.store = admin.store
        self.tenant = admin.tenant
        self.may_give_access = check_grants is not None
        check = check_grants or refuse_grants
        # Kinds in the order in which they are applied. A new kind joins by a row.
        table: tuple[TopologyKind, ...] = (
            ScopeKind(), QueueKind(partial(check_anomalies, admin.store)),
            ScheduleKind(check_draft), SchemaKind(schemas), BindingKind(), SubscriptionKind(),
            TrustKind(check),
            RoleKind(check), RuleKind(rules, check_url), PatternKind(), AlertKind(check_url),
            HumanWebhookKind(check_url),
        )  # fmt: skip
        self.kinds = {kind.name: kind for kind in table}

    async def plan(
        self, source: Source, *, prune: bool = False, adopt: bool = False
    ) -> TopologyPlan:
        """Returns what `apply` would do, without doing it."""
        return (await self._prepare(source, prune, adopt))[0]

    async def apply(
        self, source: Source, *, prune: bool = False, adopt: bool = False
    ) -> TopologyPlan:
        """Applies all of a topology or nothing.

        Raises TopologyChanged if queues, rules or schemas are changed by others meanwhile.
        """
        version = await self.store.directory_version()
        plan, builder = await self._prepare(source, prune, adopt)
        if plan.changes:
            await self.store.apply(builder.build(version))
            self.admin.directory.forget()
        return replace(plan, applied=plan.changes)

    async def export(self, name: str | None = None) -> dict[str, Any]:
        """Returns everything as a topology, or what the topology of that name owns."""
        stored = await self._load()
        owners = find_owners(stored)
        if name is not None and name not in owners.values():
            raise NotFound(f"no topology named {clip(name)}")
        document: dict[str, Any] = {"name": name or "exported"}
        for kind in self.kinds.values():
            if kind.name in ACCESS_KINDS and not self.may_give_access:
                continue
            items = [
                item
                for item in kind.list_stored(stored)
                if name is None or owners.get(item.id) == name
            ]
            tables = [make_table(item) for item in sorted(items, key=lambda item: item.id)]
            if tables:
                document[kind.name] = tables
        return document

    async def _prepare(
        self, source: Source, prune: bool, adopt: bool
    ) -> tuple[TopologyPlan, TopologyBuilder]:
        file = read_topology(source, self.kinds)
        stored = await self._load()
        target = await self._resolve(file, stored)
        builder = TopologyBuilder(target)
        before = {
            item.id: item for kind in self.kinds.values() for item in kind.list_stored(stored)
        }
        owners = find_owners(stored)
        refuse_foreign(file.name, target, before, owners, adopt)
        steps = []
        for item in target.items.values():
            step = make_step(item, before.get(item.id), owners.get(item.id) == file.name)
            if step is not None:
                steps.append(step)
                if step.step != "adopt":
                    await self.kinds[item.kind].put(item, builder)
        left = [id for id, owner in owners.items() if owner == file.name and id not in target.items]
        gone = await self._drop(left, before, prune, builder)
        unchanged = len(target.items) - len(steps)
        kept = [step for step in gone if step.step in ("leave", "keep")]
        owned = {*target.items, *((each.kind, each.scope, each.key) for each in kept)}
        builder.save(
            TOPOLOGY, f"{self.tenant}/{file.name}", Ownership(tuple(sorted(owned)), stored.now)
        )
        self._release_ownership(target, owners, file.name, builder)
        return TopologyPlan(file.name, (*steps, *gone), unchanged), builder

    async def _drop(
        self,
        left: Iterable[ItemId],
        before: Mapping[ItemId, TopologyItem],
        prune: bool,
        builder: TopologyBuilder,
    ) -> list[TopologyStep]:
        """Removes what the file no longer declares, what depends on others first."""
        depths = await self.store.depths(0) if prune else {}
        order = list(self.kinds)
        kept: set[tuple[str, str]] = set()
        steps = []
        for id in sorted(left, key=lambda id: -order.index(id[0])):
            item = before.get(id)
            if item is None:
                continue
            step: StepKind = "remove" if prune else "leave"
            if prune and is_in_use(item, builder.stored, depths, kept):
                step = "keep"
                kept.add((item.scope, item.key.partition("/")[0]))
            if step == "remove":
                self.kinds[item.kind].drop(item, builder)
            steps.append(TopologyStep(step, *id))
        return steps

    def _release_ownership(
        self,
        target: TargetTopology,
        owners: Mapping[ItemId, str],
        name: str,
        builder: TopologyBuilder,
    ) -> None:
        """Takes adopted objects from the topologies that owned them."""
        for other in {owners[id] for id in target.items if owners.get(id, name) != name}:
            objects = [id for id, owner in owners.items() if owner == other]
            rest = tuple(sorted(id for id in objects if id not in target.items))
            owned = Ownership(rest, builder.stored.now)
            builder.save(TOPOLOGY, f"{self.tenant}/{other}", owned)

    async def _load(self) -> StoredTopology:
        directory = self.admin.directory
        await directory.refresh()
        queues = [
            queue
            for queue in await self.store.queues(self.tenant)
            if queue.state is not QueueState.DELETED
        ]
        kinds = {TOPOLOGY, *(word for kind in self.kinds.values() for word in kind.documents)}
        documents = {
            kind: {
                each.name: each
                for each in await list_documents(self.store, kind, f"{self.tenant}/")
            }
            for kind in kinds
        }
        return StoredTopology(
            self.tenant, await self.store.now(), queues, await self.store.schedules(), documents,
            directory.policy,
        )  # fmt: skip

    async def _resolve(self, file: TopologyFile, stored: StoredTopology) -> TargetTopology:
        """Validates the whole file, and collects what is wrong with it."""
        problems: list[tuple[str, str]] = []
        places: dict[ItemId, str] = {}
        items: list[TopologyItem] = []
        for table in file.tables:
            try:
                item = self._read(table.kind, table.fields, table.scope)
            except PenstockError as error:
                problems.append((table.place, str(error)))
                continue
            if item.id in places:
                problems.append((table.place, f"the same as {places[item.id]}"))
            places.setdefault(item.id, table.place)
            items.append(item)
        target = TargetTopology(stored, items)
        for item in items:
            try:
                target.items[item.id] = await self.kinds[item.kind].resolve(item, target)
            except PenstockError as error:
                problems.append((places[item.id], str(error)))
        if problems:
            raise make_file_error(file.name, problems)
        self._keep_operated(target, stored)
        return target

    def _read(self, kind: str, fields: Mapping[str, Any], scope: str) -> TopologyItem:
        if kind in ACCESS_KINDS and not self.may_give_access:
            raise Forbidden(NEEDS_ACCESS)
        return self.kinds[kind].read(fields, scope)

    def _keep_operated(self, target: TargetTopology, stored: StoredTopology) -> None:
        """Leaves switches of operators as they are, unless the file says otherwise."""
        for kind in self.kinds.values():
            for before in kind.list_stored(stored) if kind.operated else ():
                item = target.items.get(before.id)
                if item is not None:
                    switches = {
                        field: before.fields[field]
                        for field in kind.operated
                        if field in before.fields and field not in item.fields
                    }
                    target.items[item.id] = replace(item, fields={**item.fields, **switches})


def is_in_use(
    item: TopologyItem,
    stored: StoredTopology,
    depths: Mapping[tuple[int, str], int],
    kept: Collection[tuple[str, str]],
) -> bool:
    """True for a queue or subscription with unfinished messages, and for a queue with a
    subscription that is kept."""
    if item.kind not in ("queue", "subscription"):
        return False
    queue = stored.queues.get((item.scope, item.key))
    busy = queue is not None and any(depths.get((queue.id, place)) for place in TICKET_PLACES)
    return busy or (item.scope, item.key) in kept


def allow_grants(grants: Sequence[str], scopes: Sequence[str]) -> None:
    """Lets a caller on the store itself declare every role and trust."""


def refuse_grants(grants: Sequence[str], scopes: Sequence[str]) -> None:
    raise Forbidden(NEEDS_ACCESS)
