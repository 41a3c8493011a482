"""Operations on routing rules."""

from penstock.broker.routing.admin import RuleAdmin
from penstock.http.auth.principal import RightScope
from penstock.http.context import RequestContext, cut_page
from penstock.http.operations import OperationTable
from penstock.model.queue import EVERY
from penstock.model.routing import RuleTest
from penstock.rules.access import Right
from penstock.wire.fields import Cursor, Name, PageLimit
from penstock.wire.rules import (
    NewRule,
    RuleCoverages,
    RuleList,
    RuleTrial,
    RuleView,
    Tried,
    make_rule,
    make_rule_view,
)

rules = OperationTable("rules")
EXAMPLE = {
    "queue": "mail",
    "when": "message.labels.tier == 'gold'",
    "do": [{"set": {"priority": 8}}, {"route": "mail-vip"}],
}


def get_rules(call: RequestContext, right: Right) -> RuleAdmin:
    call.check(right, EVERY)
    return get_author_rules(call)


def get_author_rules(call: RequestContext) -> RuleAdmin:
    """Rules act with the rights of their author, who is the caller. Without --allow-shell, no
    caller makes shell jobs over HTTP, and no rule of a caller either."""
    access, allow_shell = call.caller.access, call.service.limits.allow_shell

    def allows(right: Right, scope: str, queue: str) -> bool:
        return (right is not Right.SHELL or allow_shell) and access.allows(right, scope, queue)

    return call.broker.limit_rules(call.caller.subject, allows)


@rules.add("GET", "/v1/rules", "List routing rules", RuleList, extent=RightScope.SCOPE)
async def list_rules(
    call: RequestContext, limit: PageLimit = 100, cursor: Cursor | None = None
) -> RuleList:
    found = await get_rules(call, Right.READ).list_rules(scope=call.scope)
    page, next_cursor = cut_page(call, found, lambda each: each.rule.name, limit, cursor, "rules")
    return RuleList([make_rule_view(each) for each in page], next_cursor)


@rules.add("GET", "/v1/rules/coverage", "Count matches per routing rule", RuleCoverages,
           extent=RightScope.SCOPE)  # fmt: skip
async def get_rule_coverage(call: RequestContext, last: Tried = 1_000) -> RuleCoverages:
    """Counts what each rule does with the last messages of the scope: matched, shadowed by an
    earlier rule, without the field that it reads, or with an error."""
    return RuleCoverages(await get_rules(call, Right.READ).coverage(last=last, scope=call.scope))


@rules.add("POST", "/v1/rules/test", "Try a routing rule", RuleTest, takes=RuleTrial,
           extent=RightScope.SCOPE, example={"rule": EXAMPLE, "last": 1_000})  # fmt: skip
async def test_rule(call: RequestContext, trial: RuleTrial) -> RuleTest:
    """Returns what the rule would have done with the last messages. Nothing is written."""
    rule = make_rule(trial.name, call.scope, trial.rule)
    return await get_rules(call, Right.MANAGE).test(rule, last=trial.last)


@rules.add("GET", "/v1/rules/{name}", "Get a routing rule", RuleView, extent=RightScope.SCOPE)
async def get_rule(call: RequestContext, name: Name) -> RuleView:
    return make_rule_view(await get_rules(call, Right.READ).get(name, scope=call.scope))


@rules.add("GET", "/v1/rules/{name}/versions", "List versions of a routing rule", RuleList,
           extent=RightScope.SCOPE)  # fmt: skip
async def list_rule_versions(call: RequestContext, name: Name) -> RuleList:
    """Lists the last hundred versions, newest first."""
    found = await get_rules(call, Right.READ).versions(name, scope=call.scope)
    return RuleList([make_rule_view(each) for each in found])


@rules.add("PUT", "/v1/rules/{name}", "Save a routing rule", RuleView, takes=NewRule,
           extent=RightScope.SCOPE, example=EXAMPLE)  # fmt: skip
async def save_rule(call: RequestContext, name: Name, new: NewRule) -> RuleView:
    """Saves the next version. The rule acts with the rights of the caller."""
    admin, rule = get_rules(call, Right.MANAGE), make_rule(name, call.scope, new)
    for action in rule.do:
        if action.callback is not None:
            call.service.limits.reach.refuse("callback", action.callback)
    return make_rule_view(await admin.save(rule))


@rules.add("POST", "/v1/rules/{name}/enable", "Enable a routing rule", RuleView,
           extent=RightScope.SCOPE)  # fmt: skip
async def enable_rule(call: RequestContext, name: Name) -> RuleView:
    """Also ends a suspension."""
    return make_rule_view(await get_rules(call, Right.MANAGE).enable(name, scope=call.scope))


@rules.add("POST", "/v1/rules/{name}/disable", "Disable a routing rule", RuleView,
           extent=RightScope.SCOPE)  # fmt: skip
async def disable_rule(call: RequestContext, name: Name) -> RuleView:
    return make_rule_view(
        await get_rules(call, Right.MANAGE).enable(name, enabled=False, scope=call.scope)
    )


@rules.add("DELETE", "/v1/rules/{name}", "Delete a routing rule", None, status=204,
           extent=RightScope.SCOPE)  # fmt: skip
async def delete_rule(call: RequestContext, name: Name) -> None:
    await get_rules(call, Right.MANAGE).delete(name, scope=call.scope)
