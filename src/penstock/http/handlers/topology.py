"""Operations on topologies."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.broker.schemas.registry import SchemaRegistry
from penstock.broker.topology.apply import Topology
from penstock.broker.topology.plan import TopologyPlan
from penstock.errors import InvalidInput
from penstock.http.auth.principal import RightScope
from penstock.http.context import RequestContext
from penstock.http.handlers.access import check_grants
from penstock.http.handlers.publish import refuse_unfit
from penstock.http.handlers.rules import get_author_rules
from penstock.http.operations import OperationTable
from penstock.model.message import Draft
from penstock.model.queue import EVERY
from penstock.model.structs import copy_fields
from penstock.rules.access import Right
from penstock.wire.fields import Name
from penstock.wire.topology import (
    TopologyDocument,
    TopologyFieldView,
    TopologyPlanView,
    TopologyRequest,
    TopologyStepView,
)

topology = OperationTable("topology", scoped=False)
NO_TOPOLOGY = TopologyRequest()
EXAMPLE = {"topology": {"name": "shop", "queue": [{"name": "orders", "max_attempts": 3}]}}


def get_topology(call: RequestContext) -> Topology:
    access = call.caller.access
    rules = get_author_rules(call)

    def check(grants: Sequence[str], scopes: Sequence[str]) -> None:
        check_grants(call, grants, scopes)

    def check_draft(scope: str, draft: Draft) -> None:
        refuse_unfit(call, draft, scope)

    may_give = access.allows(Right.ACCESS, EVERY)
    return Topology(
        call.admin,
        rules,
        SchemaRegistry(call.admin),
        check_grants=check if may_give else None,
        check_url=call.service.limits.reach.refuse,
        check_draft=check_draft,
    )


@topology.add("GET", "/v1/topology", "Export the topology", TopologyDocument, right=Right.MANAGE,
              extent=RightScope.TENANT)  # fmt: skip
async def export_topology(call: RequestContext, name: Name | None = None) -> TopologyDocument:
    """Exports everything, or what the topology of that name owns. Roles and trusts need the right
    to manage access. There are no secrets in it."""
    return TopologyDocument(await get_topology(call).export(name))


@topology.add("PUT", "/v1/topology", "Apply a topology", TopologyPlanView, takes=TopologyRequest,
              extent=RightScope.TENANT, example=EXAMPLE)  # fmt: skip
async def apply_topology(
    call: RequestContext,
    plan: bool = False,
    prune: bool = False,
    adopt: bool = False,
    new: TopologyRequest = NO_TOPOLOGY,
) -> TopologyPlanView:
    """Applies all of it or nothing. `plan` only shows what would change. `prune` removes what this
    topology made and no longer declares; `adopt` takes over objects that it did not make."""
    source = read_source(new)
    service = get_topology(call)
    if plan:
        return make_plan_view(await service.plan(source, prune=prune, adopt=adopt))
    return make_plan_view(await service.apply(source, prune=prune, adopt=adopt))


def read_source(new: TopologyRequest) -> str | Mapping[str, Any]:
    if (new.topology is None) == (new.toml is None):
        raise InvalidInput("give either topology or toml")
    return new.toml if new.toml is not None else new.topology or {}


def make_plan_view(plan: TopologyPlan) -> TopologyPlanView:
    steps = [
        TopologyStepView(
            each.step, each.kind, each.scope, each.key,
            [TopologyFieldView(one.field, one.old, one.new) for one in each.changes],
        )
        for each in plan.steps
    ]  # fmt: skip
    return copy_fields(TopologyPlanView, plan, changes=plan.changes, steps=steps)
