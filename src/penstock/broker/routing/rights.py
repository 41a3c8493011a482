"""Finds rules whose authors have lost a right that the rule needs."""

from collections.abc import Iterable, Mapping

from penstock.broker.credentials import Credentials
from penstock.errors import Forbidden, NotFound, PenstockError
from penstock.model.queue import HUMAN, Queue
from penstock.model.routing import StoredRule
from penstock.rules.access import KEY_SUBJECT, Right, Trust
from penstock.rules.rule_checks import Allows, check_targets, list_patterns, list_targets
from penstock.store import Store

QueueKey = tuple[str, str, str]


class AuthorRights:
    """The rights of authors and the trusts between scopes, each read once.

    Only API keys can be looked up. The rights of other callers are in their tokens, and were
    checked when the rule was saved.
    """

    def __init__(self, store: Store, queues: Mapping[QueueKey, Queue]) -> None:
        self.store = store
        self.credentials = Credentials(store)
        self.queues = queues
        self.trusts: dict[str, list[Trust]] = {}
        self.authors: dict[tuple[str, str], Allows | str] = {}

    async def find_losses(self, rules: Iterable[StoredRule]) -> list[tuple[StoredRule, str]]:
        """Returns the enabled rules that may not act any more, and why."""
        found = []
        for stored in rules:
            if stored.rule.enabled and not stored.suspended and (why := await self._find(stored)):
                found.append((stored, why))
        return found

    async def _find(self, stored: StoredRule) -> str:
        rule = stored.rule
        crosses = any(scope != rule.scope for scope, _ in list_targets(rule))
        if not crosses and not stored.author.startswith(KEY_SUBJECT):
            return ""
        allows = await self._get_author(stored.tenant, stored.author)
        if isinstance(allows, str):
            return allows
        try:
            self._check(stored, allows, await self._get_trusts(stored.tenant))
        except Forbidden as error:
            return str(error)
        except PenstockError:
            # A target that is gone is an error of the rule at each message.
            return ""
        return ""

    def _check(self, stored: StoredRule, allows: Allows, trusts: list[Trust]) -> None:
        rule, tenant = stored.rule, stored.tenant
        check_targets(rule, lambda place: self.queues.get((tenant, *place)), trusts, allows)
        if list_patterns(rule) and not allows(Right.PUBLISH, rule.scope, HUMAN):
            raise Forbidden(
                f"rule {rule.name!r}: it acts with the rights of its author, who lacks"
                f" {Right.PUBLISH!s} on queue {HUMAN!r} of scope {rule.scope!r}"
            )

    async def _get_trusts(self, tenant: str) -> list[Trust]:
        if tenant not in self.trusts:
            self.trusts[tenant] = await self.credentials.list_trusts(tenant)
        return self.trusts[tenant]

    async def _get_author(self, tenant: str, author: str) -> Allows | str:
        """Returns the rights of an author, or why it has none."""
        known = self.authors.get((tenant, author))
        if known is None:
            known = self.authors[tenant, author] = await self._look_up(tenant, author)
        return known

    async def _look_up(self, tenant: str, author: str) -> Allows | str:
        if not author.startswith(KEY_SUBJECT):
            return allow_all
        try:
            key = await self.credentials.get_key(author.removeprefix(KEY_SUBJECT), tenant)
        except NotFound:
            return f"its author, {author}, does not exist any more"
        if (state := key.state(await self.store.now())) != "active":
            return f"its author, {author} ({key.name}), is {state}"
        made = await self.credentials.make_access(tenant, key.roles, key.grants, key.scopes)
        return made.allows


def allow_all(right: Right, scope: str, queue: str) -> bool:
    return True
