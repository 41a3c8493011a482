"""The part of the broker interface that governs queues: scopes, schemas and topologies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from penstock.broker.schemas.registry import SchemaReport
    from penstock.broker.scopes import ScopeDetails
    from penstock.broker.topology.apply import Source
    from penstock.broker.topology.plan import TopologyPlan
    from penstock.model.broadcast import BroadcastSubscription
    from penstock.model.message import Moment
    from penstock.model.routing import Rule, RuleCoverage, RuleTest, StoredRule
    from penstock.model.schemas import Binding, Compatibility, Schema


class ScopesInterface(Protocol):
    """Scopes, their names for people, and their archive."""

    async def ensure(
        self, name: str, *, display_name: str | None = None, description: str | None = None
    ) -> ScopeDetails:
        """Creates the scope if it is missing, and sets the texts that are given."""

    async def get(self, name: str) -> ScopeDetails: ...

    async def list_scopes(self) -> list[ScopeDetails]: ...

    async def archive(self, name: str) -> ScopeDetails: ...

    async def unarchive(self, name: str) -> ScopeDetails: ...


class SchemasInterface(Protocol):
    """The schema registry."""

    async def add(
        self,
        name: str,
        schema: Any,
        *,
        compatibility: Compatibility | None = None,
        scope: str = "default",
    ) -> Schema:
        """Adds a version. One that equals the last version is not added again."""

    async def check(
        self,
        name: str,
        schema: Any,
        *,
        compatibility: Compatibility | None = None,
        scope: str = "default",
    ) -> SchemaReport:
        """Reports how a version would relate to the last one, without adding it."""

    async def list_schemas(self, *, scope: str = "default") -> list[Schema]: ...

    async def get(
        self, name: str, version: int | None = None, *, scope: str = "default"
    ) -> Schema: ...

    async def delete(self, name: str, *, scope: str = "default") -> None: ...

    async def bind(
        self,
        queue: str,
        schema: str,
        *,
        type: str = "*",
        follow: bool = False,
        scope: str = "default",
    ) -> Binding:
        """Requires bodies of these types to fit `name@version`, or the last version of `name`."""

    async def unbind(self, queue: str, *, type: str = "*", scope: str = "default") -> None: ...

    async def list_bindings(
        self, queue: str | None = None, *, scope: str = "default"
    ) -> list[Binding]: ...

    async def draft(
        self, queue: str, *, type: str = "*", scope: str = "default"
    ) -> tuple[dict[str, Any], int]:
        """Infers a schema from stored bodies. Returns it and how many it was made of."""


class RulesInterface(Protocol):
    """Routing rules."""

    async def save(self, given: Rule | Mapping[str, Any]) -> StoredRule: ...

    async def list_rules(self, *, scope: str = "default") -> list[StoredRule]: ...

    async def get(self, name: str, *, scope: str = "default") -> StoredRule: ...

    async def versions(self, name: str, *, scope: str = "default") -> list[StoredRule]: ...

    async def enable(
        self, name: str, *, enabled: bool = True, scope: str = "default"
    ) -> StoredRule: ...

    async def delete(self, name: str, *, scope: str = "default") -> None: ...

    async def test(self, given: Rule | Mapping[str, Any], *, last: int = 1_000) -> RuleTest: ...

    async def coverage(
        self, *, last: int = 1_000, scope: str = "default"
    ) -> list[RuleCoverage]: ...


class BroadcastsInterface(Protocol):
    """Durable subscriptions of broadcast queues."""

    async def subscribe(
        self,
        /,
        queue: str,
        name: str,
        *,
        filter: str = "",
        ttl: float | None = None,
        start: str | Moment = "now",
        scope: str = "default",
        **settings: Any,
    ) -> BroadcastSubscription: ...

    async def list_subscriptions(
        self, queue: str, *, scope: str = "default"
    ) -> list[BroadcastSubscription]: ...

    async def get(
        self, queue: str, name: str, *, scope: str = "default"
    ) -> BroadcastSubscription: ...

    async def unsubscribe(self, queue: str, name: str, *, scope: str = "default") -> int: ...


class TopologyInterface(Protocol):
    """Topologies: scopes, queues, schedules, rules, schemas and access, declared by a file."""

    async def plan(
        self, source: Source, *, prune: bool = False, adopt: bool = False
    ) -> TopologyPlan:
        """Returns what `apply` would do, without doing it."""

    async def apply(
        self, source: Source, *, prune: bool = False, adopt: bool = False
    ) -> TopologyPlan:
        """Applies all of a topology or nothing."""

    async def export(self, name: str | None = None) -> dict[str, Any]:
        """Returns everything as a topology, or what the topology of that name owns."""


class GoverningInterface(Protocol):
    """The services of a broker that govern its queues."""

    @property
    def scopes(self) -> ScopesInterface: ...

    @property
    def schemas(self) -> SchemasInterface: ...

    @property
    def rules(self) -> RulesInterface: ...

    @property
    def broadcasts(self) -> BroadcastsInterface: ...

    @property
    def topology(self) -> TopologyInterface: ...
