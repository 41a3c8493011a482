"""Topologies over HTTP."""

from collections.abc import Mapping
from typing import Any

from penstock.broker.topology.apply import Source
from penstock.broker.topology.plan import FieldChange, TopologyPlan, TopologyStep
from penstock.client.transport import RemoteGroup
from penstock.wire.topology import TopologyDocument, TopologyPlanView, TopologyRequest


class RemoteTopology(RemoteGroup):
    """Implements `TopologyInterface` by HTTP calls."""

    async def plan(
        self, source: Source, *, prune: bool = False, adopt: bool = False
    ) -> TopologyPlan:
        """Returns what `apply` would do, without doing it."""
        return await self._send(source, plan=True, prune=prune, adopt=adopt)

    async def apply(
        self, source: Source, *, prune: bool = False, adopt: bool = False
    ) -> TopologyPlan:
        """Applies all of a topology or nothing."""
        return await self._send(source, prune=prune, adopt=adopt)

    async def export(self, name: str | None = None) -> dict[str, Any]:
        """Returns everything as a topology, or what the topology of that name owns."""
        query = {} if name is None else {"name": name}
        found = await self.send("GET", "/v1/topology", gives=TopologyDocument, query=query)
        return found.topology

    async def _send(self, source: Source, **query: bool) -> TopologyPlan:
        plan = await self.send(
            "PUT", "/v1/topology", make_request(source), gives=TopologyPlanView, query=query
        )
        steps = tuple(
            TopologyStep(
                each.step, each.kind, each.scope, each.key,
                tuple(FieldChange(one.field, one.old, one.new) for one in each.changes),
            )
            for each in plan.steps
        )  # fmt: skip
        return TopologyPlan(plan.name, steps, plan.unchanged, plan.applied)


def make_request(source: Source) -> TopologyRequest:
    if isinstance(source, Mapping):
        return TopologyRequest(topology=dict(source))
    return TopologyRequest(toml=source if isinstance(source, str) else source.decode())
