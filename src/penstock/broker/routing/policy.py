"""Loads the rules of all scopes, and finds the queues they route to."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from penstock.broker.credentials import Credentials
from penstock.broker.documents import decode_document, list_documents
from penstock.broker.routing.monitor import RuleMonitor
from penstock.errors import CannotGovern, Forbidden, InvalidInput, NotFound, PenstockError
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.human import PATTERN, HumanPattern
from penstock.model.queue import HUMAN, Queue, QueueState
from penstock.model.routing import RULE, StoredRule, Trigger
from penstock.rules.access import KEY_SUBJECT, Right, Trust
from penstock.rules.cel import EvaluationError, get_engine
from penstock.rules.globs import match_glob
from penstock.rules.rule_book import NO_RULES, CompiledRule, RuleBook
from penstock.rules.rule_checks import (
    Allows,
    check_targets,
    list_patterns,
    list_targets,
    split_target,
)
from penstock.store import Store

QueueKey = tuple[str, str, str]
ScopeKey = tuple[str, str]
NO_PATTERNS: Mapping[QueueKey, HumanPattern] = {}
decode_rule = msgspec.json.Decoder(StoredRule).decode


class RulePolicy:
    """The rules of all scopes, as of one version of the directory."""

    def __init__(
        self,
        books: Mapping[ScopeKey, RuleBook],
        queues: Mapping[QueueKey, Queue],
        problems: Mapping[ScopeKey, list[tuple[str, str]]],
        monitor: RuleMonitor,
        patterns: Mapping[QueueKey, HumanPattern] = NO_PATTERNS,
        suspended: Sequence[StoredRule] = (),
    ) -> None:
        self.books = books
        self.queues = queues
        # Maps scopes to the queue globs of rules that this process cannot evaluate, with the
        # reason.
        self.problems = problems
        self.monitor = monitor
        # The patterns of human steps, by tenant, scope and name, if a rule uses one.
        self.patterns = patterns
        self.suspended = suspended
        self.on_ends = frozenset(
            trigger
            for book in books.values()
            for trigger, rules in book.by_trigger.items()
            if rules and trigger is not Trigger.PUBLISHED
        )

    def governs(self, queue: Queue) -> bool:
        key = (queue.scope.tenant, queue.scope.name)
        if any(match_glob(glob, queue.name) for glob, _ in self.problems.get(key, ())):
            return True
        book = self.books.get(key)
        return book is not None and book.governs(queue.name)

    def find_book(self, queue: Queue) -> RuleBook:
        """Raises CannotGovern if this process cannot evaluate a rule of the queue."""
        key = (queue.scope.tenant, queue.scope.name)
        for glob, problem in self.problems.get(key, ()):
            if match_glob(glob, queue.name):
                raise CannotGovern(f"queue {queue.name!r}: {problem}")
        return self.books.get(key, NO_RULES)

    def find_target(self, stored: StoredRule, target: str) -> Queue:
        scope, name = split_target(target, stored.rule.scope)
        queue = self.queues.get((stored.tenant, scope, name))
        if queue is None:
            raise EvaluationError(f"target {target!r} does not exist")
        if queue.state not in (QueueState.ACTIVE, QueueState.PAUSED):
            raise EvaluationError(f"target {target!r} is {queue.state}")
        if queue.scope.archived:
            raise EvaluationError(f"the scope of target {target!r} is archived")
        return queue

    def find_pattern(self, stored: StoredRule, name: str) -> HumanPattern:
        pattern = self.patterns.get((stored.tenant, stored.rule.scope, name))
        if pattern is None:
            raise EvaluationError(f"pattern {name!r} does not exist")
        return pattern

    def find_inbox(self, stored: StoredRule) -> Queue:
        queue = self.queues.get((stored.tenant, stored.rule.scope, HUMAN))
        if queue is None:
            raise EvaluationError(f"queue {HUMAN!r} does not exist")
        return queue


NO_POLICY = RulePolicy({}, {}, {}, RuleMonitor())


class RuleLoader:
    """Loads the rules, and compiles each version once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.monitor = RuleMonitor()
        self.compiled: dict[bytes, CompiledRule] = {}

    async def load(self, queues: Mapping[QueueKey, Queue]) -> RulePolicy:
        rules: dict[ScopeKey, list[CompiledRule]] = {}
        problems: dict[ScopeKey, list[tuple[str, str]]] = {}
        used: dict[bytes, CompiledRule] = {}
        for document in await list_documents(self.store, RULE):
            tenant, scope, name = document.name.split("/", 2)
            try:
                rule = self.compiled.get(document.body) or compile_rule(document)
            except (CannotGovern, InvalidInput, msgspec.DecodeError) as error:
                problem = (find_queue_glob(document), f"rule {name!r} cannot be used: {error}")
                problems.setdefault((tenant, scope), []).append(problem)
                continue
            used[document.body] = rule
            rules.setdefault((tenant, scope), []).append(rule)
        self.compiled = used
        await self.check_rights([each.stored for each in used.values()], queues)
        books = {key: RuleBook(found) for key, found in rules.items()}
        used_patterns = any(list_patterns(each.stored.rule) for each in used.values())
        patterns = await load_patterns(self.store) if used_patterns else NO_PATTERNS
        suspended = [each.stored for each in used.values() if each.stored.suspended]
        return RulePolicy(books, queues, problems, self.monitor, patterns, suspended)

    async def check_rights(
        self, rules: Iterable[StoredRule], queues: Mapping[QueueKey, Queue]
    ) -> None:
        """Suspends rules whose authors have lost a right that they need."""
        for stored, reason in await AuthorRights(self.store, queues).find_losses(rules):
            self.monitor.suspend(stored, reason)

    async def save_suspensions(self) -> None:
        """Suspends the rules in the store that this process suspended, for all processes."""
        for key, each in list(self.monitor.pending.items()):
            name = make_rule_name(*key)
            document = await self.store.document(RULE, name)
            if document is not None:
                stored = decode_rule(document.body)
                if stored.version == each.stored.version and not stored.suspended:
                    body = msgspec.json.encode(replace(stored, suspended=each.reason))
                    guard = Document(kind=RULE, name=name, body=body, version=document.version)
                    await self.store.advance(Change(guards=(guard,), touch_directory=True))
            self.monitor.pending.pop(key, None)


async def load_patterns(store: Store) -> dict[QueueKey, HumanPattern]:
    patterns: dict[QueueKey, HumanPattern] = {}
    for document in await list_documents(store, PATTERN):
        tenant, scope, name = document.name.split("/", 2)
        patterns[tenant, scope, name] = decode_document(document, HumanPattern)
    return patterns


def make_rule_name(tenant: str, scope: str, name: str) -> str:
    """Returns the name of the document of a rule."""
    return f"{tenant}/{scope}/{name}"


def compile_rule(document: Document) -> CompiledRule:
    return CompiledRule(decode_rule(document.body), get_engine())


def find_queue_glob(document: Document) -> str:
    """Returns the queues of a rule that cannot be read; all, if a newer version wrote it."""
    try:
        rule = msgspec.json.decode(document.body)["rule"]
        if not rule.get("enabled", True):
            return ""
        return str(rule.get("queue", "*"))
    except (msgspec.DecodeError, KeyError, TypeError):
        return "*"


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
