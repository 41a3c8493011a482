"""Manages routing rules: saves them after checks, keeps their versions, tries them on messages."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.broker.credentials import Credentials
from penstock.broker.documents import decode_document, list_documents
from penstock.broker.queue_cache import QueueCache
from penstock.broker.routing.dry_run import cover_rules, try_rule
from penstock.broker.routing.policy import decode_rule, make_rule_name
from penstock.broker.waiting.human_patterns import HumanPatterns, open_inbox_queue
from penstock.errors import Busy, InvalidInput, NotFound
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.human import HumanPattern
from penstock.model.message import Record
from penstock.model.queue import Queue
from penstock.model.routing import (
    MAX_RULES,
    MAX_VERSIONS,
    RULE,
    RULE_CURSOR,
    RULE_CURSOR_NAME,
    RULE_VERSION,
    Rule,
    RuleCoverage,
    RuleTest,
    StoredRule,
    Trigger,
)
from penstock.model.store_types import Cursor, Query
from penstock.retry_policies import DOCUMENT_SAVE_ATTEMPTS
from penstock.rules.access import EVERYTHING, Right, Trust
from penstock.rules.cel import get_engine
from penstock.rules.globs import match_glob
from penstock.rules.masking import check_condition
from penstock.rules.rule_book import CompiledRule
from penstock.rules.rule_checks import (
    Allows,
    check_cycles,
    check_patterns,
    check_rule,
    check_targets,
    list_patterns,
    name_rule,
    parse_rule,
)
from penstock.rules.validation import clip
from penstock.store import Store

MAX_TRIED = 10_000
PAGE_SIZE = 500
NO_PATTERNS: Mapping[tuple[str, str], HumanPattern] = {}
encode = msgspec.json.Encoder().encode


class DeclaredTopology(NamedTuple):
    """Queues, trusts and rules that are saved together with a rule."""

    queues: Mapping[tuple[str, str], Queue]
    trusts: Sequence[Trust] = ()
    rules: Sequence[Rule] = ()
    patterns: Mapping[tuple[str, str], HumanPattern] = NO_PATTERNS


NOTHING_ELSE = DeclaredTopology({})


class RuleAdmin:
    """The rules of a tenant, as one author may manage them."""

    def __init__(
        self,
        store: Store,
        directory: QueueCache,
        tenant: str,
        author: str = "",
        allows: Allows = EVERYTHING.allows,
    ) -> None:
        self.store = store
        self.directory = directory
        self.tenant = tenant
        self.author = author
        self.allows = allows

    async def save(self, given: Rule | Mapping[str, Any]) -> StoredRule:
        """Creates the rule, or saves its next version. It applies within a second."""
        (stored,) = await self.save_all((parse_rule(given),))
        return stored

    async def save_all(self, rules: Sequence[Rule]) -> list[StoredRule]:
        """Saves rules together: all of them, or none."""
        refuse_twins(rules)
        for rule in rules:
            with name_rule(rule.name):
                await self.check(rule, DeclaredTopology({}, rules=rules))
        for scope in {rule.scope for rule in rules if list_patterns(rule)}:
            await open_inbox_queue(self.store, self.directory, self.tenant, scope)
        for _ in range(DOCUMENT_SAVE_ATTEMPTS):
            prepared = [await self.prepare(rule) for rule in rules]
            if await self._write(merge_changes([change for _, change in prepared])):
                return [stored for stored, _ in prepared]
        names = ", ".join(repr(rule.name) for rule in rules)
        raise Busy(f"rule {names} is being changed by other requests; try again")

    async def prepare(self, rule: Rule) -> tuple[StoredRule, Change]:
        """Makes the next version of a checked rule, and the change that saves it."""
        document = await self._find(rule.scope, rule.name)
        # Read before the time, so that no end after it is at or below the cursor.
        cursor = await self._find_cursor(rule)
        stored = await self._make_next(rule, document)
        return stored, make_change(document, stored, (make_version(stored),), cursor)

    async def check(self, rule: Rule, declared: DeclaredTopology = NOTHING_ELSE) -> CompiledRule:
        """Raises what a save would raise, and writes nothing.

        It may refer to what is `declared`, which is saved together with the rule.
        """
        check_rule(rule)
        trial = StoredRule(rule=rule, tenant=self.tenant)
        compiled = CompiledRule(trial, get_engine())
        await self.directory.refresh()
        queues = {
            (scope, name): queue
            for (tenant, scope, name), queue in self.directory.by_name.items()
            if tenant == self.tenant
        }
        queues.update(declared.queues)
        if not any(scope == rule.scope for scope, _ in queues):
            raise NotFound(f"no scope named {clip(rule.scope)}")
        trusts = [*await Credentials(self.store).list_trusts(self.tenant), *declared.trusts]
        check_targets(rule, queues.get, trusts, self.allows)
        if list_patterns(rule):
            patterns = await self._read_patterns(rule.scope)
            check_patterns(rule, {**patterns, **declared.patterns}.get, self.allows)
        stored = [each.rule for each in await self._list_all()]
        known = {(each.scope, each.name): each for each in stored}
        known |= {(each.scope, each.name): each for each in (*declared.rules, rule)}
        if len(known) > MAX_RULES:
            raise InvalidInput(
                f"there would be {len(known)} rules; at most {MAX_RULES} are allowed"
            )
        if rule.on is Trigger.PUBLISHED:
            check_cycles(rule, known.values(), queues)
        return compiled

    async def list_rules(self, *, scope: str = "default") -> list[StoredRule]:
        found = [each for each in await self._list_all() if each.rule.scope == scope]
        return sorted(found, key=lambda each: (each.rule.on, each.rule.order, each.rule.name))

    async def get(self, name: str, *, scope: str = "default") -> StoredRule:
        return decode_rule((await self._get(scope, name)).body)

    async def versions(self, name: str, *, scope: str = "default") -> list[StoredRule]:
        """Lists the versions that were saved, newest first."""
        await self._get(scope, name)
        prefix = f"{make_rule_name(self.tenant, scope, name)}@"
        found = await list_documents(self.store, RULE_VERSION, prefix)
        return [decode_rule(each.body) for each in reversed(found)]

    async def enable(
        self, name: str, *, enabled: bool = True, scope: str = "default"
    ) -> StoredRule:
        """Enables the rule, which ends a suspension too, or disables it."""
        for _ in range(DOCUMENT_SAVE_ATTEMPTS):
            document = await self._get(scope, name)
            before = decode_rule(document.body)
            rule = replace(before.rule, enabled=enabled)
            if enabled:
                await self.check(rule)
            since = before.since or (await self.store.now() if enabled else 0)
            # Another author takes over a suspended rule, whose own may have lost a right.
            author = self.author if enabled and before.suspended else before.author
            stored = replace(before, rule=rule, suspended="", since=since, author=author)
            if await self._write(make_change(document, stored)):
                return stored
        raise Busy(f"rule {name!r} is being changed by other requests; try again")

    async def delete(self, name: str, *, scope: str = "default") -> None:
        await self._get(scope, name)
        versions = await self.versions(name, scope=scope)
        document_name = make_rule_name(self.tenant, scope, name)
        names = [make_version_name(document_name, each.version) for each in versions]
        deletes = ((RULE, document_name), *((RULE_VERSION, each) for each in names))
        await self.store.advance(Change(deletes=deletes, touch_directory=True))
        self.directory.forget()

    async def test(self, given: Rule | Mapping[str, Any], *, last: int = 1_000) -> RuleTest:
        """Tries a rule on the last messages of its queues. Nothing is written."""
        rule = parse_rule(given)
        compiled = await self.check(rule)
        self.refuse_masked(rule)
        records = await self._read_last(rule.scope, rule.queue, last)
        return try_rule(compiled, self.directory, records)

    def refuse_masked(self, rule: Rule) -> None:
        """Raises FieldMasked if the condition reads a masked field: its result would reveal it."""
        check_condition(rule.when or "", self._list_queues(rule.scope, rule.queue), self._reveals)

    async def coverage(self, *, last: int = 1_000, scope: str = "default") -> list[RuleCoverage]:
        """Counts for each rule of the scope what it does with the last messages."""
        rules = [CompiledRule(each, get_engine()) for each in await self.list_rules(scope=scope)]
        return cover_rules(rules, self.directory, await self._read_last(scope, "*", last))

    async def _read_last(self, scope: str, glob: str, last: int) -> list[Record]:
        if not 1 <= last <= MAX_TRIED:
            raise InvalidInput(f"last is {last}; it must be from 1 to {MAX_TRIED}")
        await self.directory.refresh()
        queue_ids = tuple(queue.id for queue in self._list_queues(scope, glob))
        found: list[Record] = []
        before: int | None = None
        while queue_ids and len(found) < last:
            limit = min(PAGE_SIZE, last - len(found))
            page = await self.store.find(Query(queue_ids, before=before, limit=limit))
            found += page
            if len(page) < limit:
                break
            before = page[-1].message.id
        return found

    def _reveals(self, scope: str, queue: str) -> bool:
        return self.allows(Right.REVEAL, scope, queue)

    def _list_queues(self, scope: str, glob: str) -> Iterable[Queue]:
        for (tenant, in_scope, name), queue in self.directory.by_name.items():
            fits = (tenant, in_scope) == (self.tenant, scope) and match_glob(glob, name)
            if fits and not queue.system:
                yield queue

    async def _make_next(self, rule: Rule, document: Document | None) -> StoredRule:
        now = await self.store.now()
        before = None if document is None else decode_rule(document.body)
        return StoredRule(
            rule=rule,
            tenant=self.tenant,
            version=1 if before is None else before.version + 1,
            author=self.author,
            saved_at=now,
            since=(before.since if before is not None else 0) or (now if rule.enabled else 0),
        )

    async def _find_cursor(self, rule: Rule) -> tuple[Document, ...]:
        """Returns where rules on ends begin to read, if this is the first of them."""
        if rule.on is Trigger.PUBLISHED:
            return ()
        if await self.store.document(RULE_CURSOR, RULE_CURSOR_NAME) is not None:
            return ()
        known = [each.cursor for each in (await self.store.cursors()).values()]
        last = max(known, key=lambda each: (each.epoch, each.history), default=Cursor())
        body = encode(last)
        return (Document(kind=RULE_CURSOR, name=RULE_CURSOR_NAME, body=body, version=0),)

    async def _read_patterns(self, scope: str) -> dict[tuple[str, str], HumanPattern]:
        found = await HumanPatterns(self.store, self.tenant).list_patterns(scope=scope)
        return {(scope, each.name): each for each in found}

    async def _write(self, change: Change) -> bool:
        """Returns False if another request changed the rule since it was read."""
        written = await self.store.advance(change) is not None
        self.directory.forget()
        return written

    async def _find(self, scope: str, name: str) -> Document | None:
        return await self.store.document(RULE, make_rule_name(self.tenant, scope, name))

    async def _get(self, scope: str, name: str) -> Document:
        found = await self._find(scope, name)
        if found is None:
            where = "" if scope == "default" else f" in scope {scope!r}"
            raise NotFound(f"no rule named {clip(name)}{where}")
        return found

    async def _list_all(self) -> list[StoredRule]:
        documents = await list_documents(self.store, RULE, f"{self.tenant}/")
        return [decode_document(each, StoredRule) for each in documents]


def make_change(
    before: Document | None,
    stored: StoredRule,
    saves: tuple[Document, ...] = (),
    also: tuple[Document, ...] = (),
) -> Change:
    """Saves a rule if it is still as it was read, and deletes its version that is too old."""
    name = make_rule_name(*stored.key)
    version = 0 if before is None else before.version
    guard = Document(kind=RULE, name=name, body=encode(stored), version=version)
    outdated = stored.version - MAX_VERSIONS
    deletes = ((RULE_VERSION, make_version_name(name, outdated)),) if outdated > 0 else ()
    return Change(guards=(guard, *also), saves=saves, deletes=deletes, touch_directory=True)


def make_version(stored: StoredRule) -> Document:
    name = make_version_name(make_rule_name(*stored.key), stored.version)
    return Document(kind=RULE_VERSION, name=name, body=encode(stored))


def make_version_name(rule_name: str, version: int) -> str:
    """Names sort by version."""
    return f"{rule_name}@{version:09}"


def merge_changes(changes: Sequence[Change]) -> Change:
    """Returns one change. Several first rules on ends make the same cursor."""
    guards = {(each.kind, each.name): each for change in changes for each in change.guards}
    return Change(
        guards=tuple(guards.values()),
        saves=tuple(each for change in changes for each in change.saves),
        deletes=tuple(each for change in changes for each in change.deletes),
        touch_directory=True,
    )


def refuse_twins(rules: Sequence[Rule]) -> None:
    counts = Counter((rule.scope, rule.name) for rule in rules)
    for (_, name), count in counts.items():
        if count > 1:
            raise InvalidInput(f"rule {name!r} is declared {count} times")
