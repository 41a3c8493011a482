"""Operations on topologies."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penstock.broker.schemas.registry import SchemaRegistry
from penstock.broker.topology.apply import Topology
from penstock.broker.topology.plan import TopologyPlan, TopologyStep
from penstock.errors import FieldMasked, InvalidInput
from penstock.http.auth.principal import RightScope
from penstock.http.context import RequestContext
from penstock.http.handlers.access import check_grants
from penstock.http.handlers.publish import refuse_unfit
from penstock.http.handlers.rules import get_author_rules
from penstock.http.operations import OperationTable
from penstock.model.message import Draft
from penstock.model.queue import EVERY, Queue
from penstock.model.structs import copy_fields
from penstock.rules.access import Right
from penstock.rules.masking import MASKED, list_hidden, mask_draft
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
MASKABLE = ("body", "body_base64", "headers", "labels")
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
    await refuse_masked_schedules(call)
    return TopologyDocument(await get_topology(call).export(name))


async def refuse_masked_schedules(call: RequestContext) -> None:
    """A file with masked values would overwrite the real ones when it is applied."""
    hidden = await list_masking_queues(call)
    for scope in {queue.scope.name for queue in hidden.values()}:
        for schedule in await call.admin.schedules(scope=scope):
            queue = hidden.get(schedule.queue_id)
            if queue and mask_draft(schedule.draft, queue.settings.mask).changed:
                raise FieldMasked(
                    f"the message of schedule {schedule.name!r} has fields that are masked in"
                    f" queue {queue.name!r}; exporting it needs the right 'reveal'"
                )


async def list_masking_queues(call: RequestContext) -> dict[int, Queue]:
    """Returns the queues that mask fields for this caller, by id."""
    queues = await call.admin.queues()
    return {queue.id: queue for queue in queues if list_hidden(queue, call.reveals)}


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
    hidden = {queue.scope.name for queue in (await list_masking_queues(call)).values()}
    run = service.plan if plan else service.apply
    return make_plan_view(await run(source, prune=prune, adopt=adopt), hidden)


def read_source(new: TopologyRequest) -> str | Mapping[str, Any]:
    if (new.topology is None) == (new.toml is None):
        raise InvalidInput("give either topology or toml")
    return new.toml if new.toml is not None else new.topology or {}


def make_plan_view(plan: TopologyPlan, hidden: Collection[str] = ()) -> TopologyPlanView:
    """`hidden` are the scopes in which old values of messages are not shown to the caller."""

    def mask(step: TopologyStep, field: str, old: Any) -> Any:
        hides = step.kind == "schedule" and step.scope in hidden and field in MASKABLE
        return MASKED if hides and old is not None else old

    steps = [
        TopologyStepView(
            each.step, each.kind, each.scope, each.key,
            [
                TopologyFieldView(one.field, mask(each, one.field, one.old), one.new)
                for one in each.changes
            ],
        )
        for each in plan.steps
    ]  # fmt: skip
    return copy_fields(TopologyPlanView, plan, changes=plan.changes, steps=steps)
