"""Routing rules over HTTP."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from penstock.client.transport import RemoteGroup
from penstock.model.routing import Rule, RuleCoverage, RuleTest, StoredRule
from penstock.rules.rule_checks import parse_rule
from penstock.wire.rules import (
    RuleCoverages,
    RuleList,
    RuleTrial,
    RuleView,
    make_new_rule,
    make_stored_rule,
)


class RemoteRules(RemoteGroup):
    """Implements `RulesInterface` by HTTP calls."""

    async def save(self, given: Rule | Mapping[str, Any]) -> StoredRule:
        rule = parse_rule(given)
        return await self._rule("PUT", rule_path(rule.name), rule.scope, make_new_rule(rule))

    async def list_rules(self, *, scope: str = "default") -> list[StoredRule]:
        pages = self.transport.read_pages("/v1/rules", RuleList, {"scope": scope})
        return [make_stored_rule(each) async for page in pages for each in page.rules]

    async def get(self, name: str, *, scope: str = "default") -> StoredRule:
        return await self._rule("GET", rule_path(name), scope)

    async def versions(self, name: str, *, scope: str = "default") -> list[StoredRule]:
        found = await self.send("GET", f"{rule_path(name)}/versions", gives=RuleList, scope=scope)
        return [make_stored_rule(each) for each in found.rules]

    async def enable(
        self, name: str, *, enabled: bool = True, scope: str = "default"
    ) -> StoredRule:
        verb = "enable" if enabled else "disable"
        return await self._rule("POST", f"{rule_path(name)}/{verb}", scope)

    async def delete(self, name: str, *, scope: str = "default") -> None:
        await self.transport.exchange("DELETE", rule_path(name), scope=scope)

    async def test(self, given: Rule | Mapping[str, Any], *, last: int = 1_000) -> RuleTest:
        rule = parse_rule(given)
        sent = RuleTrial(rule=make_new_rule(rule), name=rule.name, last=last)
        return await self.send("POST", "/v1/rules/test", sent, gives=RuleTest, scope=rule.scope)

    async def coverage(self, *, last: int = 1_000, scope: str = "default") -> list[RuleCoverage]:
        query = {"scope": scope, "last": last}
        found = await self.send("GET", "/v1/rules/coverage", gives=RuleCoverages, query=query)
        return found.rules

    async def _rule(self, method: str, path: str, scope: str, sent: object = None) -> StoredRule:
        found = await self.send(method, path, sent, gives=RuleView, scope=scope)
        return make_stored_rule(found)


def rule_path(name: str) -> str:
    return f"/v1/rules/{quote(name, safe='')}"
