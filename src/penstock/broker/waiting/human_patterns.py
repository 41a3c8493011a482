"""Stores the patterns of human steps. Each save makes the next version.

Rules refer to patterns, so a change of one changes the directory.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.broker.documents import decode_document, list_documents
from penstock.broker.queue_cache import QueueCache
from penstock.errors import Conflict, NotFound, SlugConflict
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.human import PATTERN, HumanPattern, HumanSpec
from penstock.model.queue import HUMAN, HUMAN_SETTINGS, Queue
from penstock.model.routing import RULE, StoredRule
from penstock.rules.human_patterns import check_pattern, expand
from penstock.rules.rule_checks import list_patterns
from penstock.rules.validation import check_name, clip
from penstock.store import Store

PAGE_SIZE = 1_000
encode = msgspec.json.Encoder().encode


class HumanPatterns:
    """The patterns of one tenant."""

    def __init__(self, store: Store, tenant: str) -> None:
        self.store = store
        self.tenant = tenant

    async def save(self, pattern: HumanPattern, *, scope: str = "default") -> HumanPattern:
        """Saves a pattern as its next version. Open steps keep the text they were made from."""
        check_pattern(pattern)
        name = self.make_name(scope, pattern.name)
        found = await self.store.document(PATTERN, name)
        before = 0 if found is None else decode(found).version
        stored = 0 if found is None else found.version or 0
        saved = replace(pattern, version=before + 1)
        document = Document(kind=PATTERN, name=name, body=encode(saved), version=stored)
        change = Change(guards=(document,), touch_directory=True)
        if await self.store.advance(change) is None:
            raise Conflict(f"pattern {pattern.name!r} was changed by another request; try again")
        return saved

    async def get(self, name: str, *, scope: str = "default") -> HumanPattern:
        check_name("pattern", name)
        found = await self.store.document(PATTERN, self.make_name(scope, name))
        if found is None:
            raise NotFound(f"no pattern named {clip(name)}")
        return decode(found)

    async def list_patterns(self, *, scope: str = "default") -> list[HumanPattern]:
        prefix = self.make_name(scope, "")
        found: list[HumanPattern] = []
        after = prefix
        while True:
            page = await self.store.documents(PATTERN, after, PAGE_SIZE)
            fitting = [each for each in page if each.name.startswith(prefix)]
            found += map(decode, fitting)
            if len(fitting) < PAGE_SIZE:
                return found
            after = page[-1].name

    async def delete(self, name: str, *, scope: str = "default") -> None:
        """Deletes a pattern that no rule uses. Open steps stay."""
        await self.get(name, scope=scope)
        for document in await list_documents(self.store, RULE, self.make_name(scope, "")):
            rule = decode_document(document, StoredRule).rule
            if any(each.pattern == name for each in list_patterns(rule)):
                raise Conflict(
                    f"rule {rule.name!r} escalates with pattern {name!r}; delete the rule first"
                )
        deleted = ((PATTERN, self.make_name(scope, name)),)
        await self.store.advance(Change(deletes=deleted, touch_directory=True))

    async def expand(
        self, name: str, parameters: Mapping[str, Any], *, scope: str = "default"
    ) -> HumanSpec:
        return expand(await self.get(name, scope=scope), parameters)

    def make_name(self, scope: str, name: str) -> str:
        return f"{self.tenant}/{scope}/{name}"


async def open_inbox_queue(store: Store, directory: QueueCache, tenant: str, scope: str) -> Queue:
    """Returns the queue of human steps, and makes it at the first use."""
    try:
        return await directory.get(tenant, scope, HUMAN)
    except NotFound:
        place = await store.scope(tenant, scope)
        if place is None:
            raise NotFound(f"no scope named {scope!r}") from None
    # Another process may make it at the same time.
    with suppress(SlugConflict):
        await store.create_queue(place.id, HUMAN, HUMAN_SETTINGS)
    directory.forget()
    return await directory.get_by_name(tenant, scope, HUMAN)


def decode(document: Document) -> HumanPattern:
    return msgspec.json.decode(document.body, type=HumanPattern)
