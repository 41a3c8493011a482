"""The schema registry: adds versions, binds them to queues, and drafts schemas."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from penstock.broker.documents import decode_document, list_documents
from penstock.broker.policy import make_binding_name, make_schema_name
from penstock.broker.queues import QueueAdmin, check_allowed, check_own_name, is_allowed
from penstock.broker.schemas.process import check_in_process
from penstock.errors import Conflict, InvalidInput, InvalidState, NotFound, SchemaIncompatible
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.schemas import BINDING, SCHEMA, Binding, Compatibility, Schema
from penstock.model.store_types import Query
from penstock.rules import validation
from penstock.rules.globs import match_glob
from penstock.rules.masking import check_unmasked
from penstock.rules.schema_compat import Comparison, FieldBreak
from penstock.rules.schema_draft import infer_schema
from penstock.rules.schemas import (
    NOT_JSON,
    compile_schema,
    decode_json,
    find_mismatches,
    parse_schema,
)

MAX_VERSIONS = 1_000
MAX_BINDINGS = 100
MAX_TYPE_LENGTH = 120
# The stored bodies that stand in for a proof, or that a draft is made of.
MAX_SAMPLES = 1_000
SAMPLE_PAGE = 100
MAX_SAMPLE_BYTES = 16_777_216
# Small enough to compile without limits on its time.
SMALL_SCHEMA_BYTES = 2_048
COMPATIBILITIES = ("none", "backward", "forward", "full")
encode = msgspec.json.Encoder().encode


class SchemaReport(Struct, frozen=True, kw_only=True):
    """The comparison of a new version with the latest.

    `unproven` lists fields for which there is no proof. Then `tested` of the stored bodies were
    checked against the new version, and `failed` of them do not match.
    """

    name: str
    version: int
    compatibility: Compatibility = "none"
    breaks: tuple[FieldBreak, ...] = ()
    unproven: tuple[str, ...] = ()
    tested: int = 0
    failed: int = 0

    @property
    def compatible(self) -> bool:
        return not self.breaks and not self.failed


class SchemaRegistry:
    """The schemas of one tenant, limited to the scopes and queues that `admin` allows."""

    def __init__(self, admin: QueueAdmin) -> None:
        self.admin = admin
        self.store = admin.store
        self.tenant = admin.tenant

    async def add(
        self,
        name: str,
        schema: Any,
        *,
        compatibility: Compatibility | None = None,
        scope: str = "default",
    ) -> Schema:
        """Adds a version. One that equals the last version is not added again.

        A version that breaks the compatibility of the last one is refused. Bindings that follow
        the schema move to it.
        """
        await self._check_scope(scope)
        validation.check_name("schema", name)
        text = read_schema_text(schema)
        last = await self._find(name, None, scope)
        mode = read_compatibility(compatibility, last)
        if last is not None and (bytes(last.schema), last.compatibility) == (text, mode):
            return last
        report = await self._report(name, text, last, mode, scope)
        if mode != "none":
            refuse_incompatible(report)
        added = Schema(
            scope=scope, name=name, version=report.version, schema=Raw(text),
            compatibility=mode, created_at=await self.store.now(),
        )  # fmt: skip
        await self._save(added, report)
        return added

    async def _save(self, added: Schema, report: SchemaReport) -> None:
        name = make_schema_name(self.tenant, added.scope, added.name, added.version)
        followers = await self._move_followers(added) if report.compatible else ()
        change = Change(
            guards=(Document(kind=SCHEMA, name=name, body=encode(added), version=0), *followers),
            touch_directory=bool(followers),
        )
        if await self.store.advance(change) is None:
            raise Conflict(f"schema {added.name!r} was changed by another request; try again")
        self.admin.directory.forget()

    async def _move_followers(self, added: Schema) -> tuple[Document, ...]:
        """Returns the documents of bindings that follow the schema, with its new version."""
        stored = await list_documents(self.store, BINDING, f"{self.tenant}/{added.scope}/")
        bound = [(each, decode_document(each, Binding)) for each in stored]
        return tuple(
            replace(document, body=encode(replace(binding, version=added.version)))
            for document, binding in bound
            if binding.schema == added.name and binding.follow
        )

    async def check(
        self,
        name: str,
        schema: Any,
        *,
        compatibility: Compatibility | None = None,
        scope: str = "default",
    ) -> SchemaReport:
        """Reports how a version would relate to the last one, without adding it."""
        await self._check_scope(scope)
        validation.check_name("schema", name)
        text = read_schema_text(schema)
        last = await self._find(name, None, scope)
        return await self._report(name, text, last, read_compatibility(compatibility, last), scope)

    async def _report(
        self, name: str, text: bytes, last: Schema | None, mode: Compatibility, scope: str
    ) -> SchemaReport:
        version = 1 if last is None else last.version + 1
        if version > MAX_VERSIONS:
            raise InvalidState(f"schema {name!r} has {MAX_VERSIONS} versions; use another name")
        # Without a promise, bindings still follow only a version that accepts what they accepted.
        compared: Compatibility = "backward" if mode == "none" else mode
        found = await check_schema(text, last, compared)
        report = SchemaReport(
            name=name, version=version, compatibility=mode,
            breaks=found.breaks, unproven=found.unproven,
        )  # fmt: skip
        return await self._test_bodies(report, text, scope) if found.unproven else report

    async def _test_bodies(self, report: SchemaReport, text: bytes, scope: str) -> SchemaReport:
        """Checks the last bodies of the queues that the schema is bound to."""
        validator, tested, failed = compile_schema(decode_json(text)), 0, 0
        for binding in await self._list_bindings(scope):
            if binding.schema == report.name:
                async for body in self._read_bodies(binding.queue, binding.type, scope):
                    tested += 1
                    failed += bool(find_mismatches(validator, body, countless=True))
        return replace(report, tested=tested, failed=failed)

    async def list_schemas(self, *, scope: str = "default") -> list[Schema]:
        """Lists the last version of each schema."""
        await self._check_scope(scope)
        found = await list_documents(self.store, SCHEMA, f"{self.tenant}/{scope}/")
        schemas = [decode_document(each, Schema) for each in found]
        return list({each.name: each for each in schemas}.values())

    async def get(self, name: str, version: int | None = None, *, scope: str = "default") -> Schema:
        """Returns a version of a schema, by default the last one."""
        await self._check_scope(scope)
        found = await self._find(name, version, scope)
        if found is None:
            which = name if version is None else f"{name}@{version}"
            raise NotFound(f"no schema named {validation.clip(which)}")
        return found

    async def _find(self, name: str, version: int | None, scope: str) -> Schema | None:
        prefix = f"{self.tenant}/{scope}/{name}@"
        if version is not None:
            stored = await self.store.document(SCHEMA, f"{prefix}{version:06}")
            return None if stored is None else decode_document(stored, Schema)
        found = await list_documents(self.store, SCHEMA, prefix)
        return decode_document(found[-1], Schema) if found else None

    async def delete(self, name: str, *, scope: str = "default") -> None:
        """Deletes all versions of a schema that is bound to no queue."""
        await self._check_scope(scope)
        used = [each.queue for each in await self._list_bindings(scope) if each.schema == name]
        if used:
            queues = ", ".join(sorted(set(used))[:5])
            raise InvalidState(f"schema {name!r} is bound to {queues}; unbind it first")
        found = await list_documents(self.store, SCHEMA, f"{self.tenant}/{scope}/{name}@")
        if not found:
            raise NotFound(f"no schema named {validation.clip(name)}")
        await self.store.delete_documents(SCHEMA, [each.name for each in found])

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
        found = await self.admin.queue(queue, scope=scope)
        check_own_name(found.name.partition("/")[0])
        validation.check_text("type", type, MAX_TYPE_LENGTH)
        name, version = split_reference(schema)
        stored = await self._find(name, version, scope)
        if stored is None:
            raise NotFound(f"no schema named {validation.clip(schema)}")
        bound = [each for each in await self._list_bindings(scope) if each.queue == queue]
        if len(bound) >= MAX_BINDINGS and type not in {each.type for each in bound}:
            raise InvalidState(f"queue {queue!r} has {MAX_BINDINGS} bindings already")
        binding = Binding(
            scope=scope, queue=queue, type=type, schema=name, version=stored.version,
            follow=follow,
        )  # fmt: skip
        document = make_schema_name(self.tenant, scope, name, stored.version)
        change = Change(
            expects=((SCHEMA, document, 1),),
            saves=(self._make_binding_document(binding),),
            touch_directory=True,
        )
        if await self.store.advance(change) is None:
            raise NotFound(f"no schema named {validation.clip(schema)}")
        self.admin.directory.forget()
        return binding

    async def unbind(self, queue: str, *, type: str = "*", scope: str = "default") -> None:
        check_allowed(self.admin, scope, queue)
        name = make_binding_name(self.tenant, scope, queue, type)
        if await self.store.document(BINDING, name) is None:
            raise NotFound(f"queue {queue!r} has no schema bound to type {validation.clip(type)}")
        await self.store.advance(Change(deletes=((BINDING, name),), touch_directory=True))
        self.admin.directory.forget()

    async def list_bindings(
        self, queue: str | None = None, *, scope: str = "default"
    ) -> list[Binding]:
        """Lists the bindings of one queue, or of all queues that the caller has access to."""
        if queue is not None:
            check_allowed(self.admin, scope, queue)
        return [
            each
            for each in await self._list_bindings(scope)
            if queue in (None, each.queue) and is_allowed(self.admin, scope, each.queue)
        ]

    async def _list_bindings(self, scope: str) -> list[Binding]:
        found = await list_documents(self.store, BINDING, f"{self.tenant}/{scope}/")
        return [decode_document(each, Binding) for each in found]

    def _make_binding_document(self, binding: Binding) -> Document:
        name = make_binding_name(self.tenant, binding.scope, binding.queue, binding.type)
        return Document(kind=BINDING, name=name, body=encode(binding))

    async def draft(
        self, queue: str, *, type: str = "*", scope: str = "default"
    ) -> tuple[dict[str, Any], int]:
        """Infers a schema from the last stored bodies. Returns it and how many it was made of."""
        samples = []
        async for body in self._read_bodies(queue, type, scope):
            try:
                samples.append(decode_json(body))
            except NOT_JSON:
                continue
        return infer_schema(samples), len(samples)

    async def _read_bodies(self, queue: str, type: str, scope: str) -> AsyncIterator[bytes]:
        """Reads the last bodies of these types, the newest first."""
        found = await self.admin.queue(queue, scope=scope)
        check_unmasked(found, "body", "testing its bodies", self.admin.reveals)
        before, count, size = None, 0, 0
        while count < MAX_SAMPLES and size < MAX_SAMPLE_BYTES:
            records = await self.store.find(Query((found.id,), before=before, limit=SAMPLE_PAGE))
            for message in (record.message for record in records):
                before = message.id
                if match_glob(type, message.type) and count < MAX_SAMPLES:
                    count, size = count + 1, size + len(message.body)
                    yield message.body
            if len(records) < SAMPLE_PAGE:
                return

    async def _check_scope(self, scope: str) -> None:
        check_allowed(self.admin, scope)
        if await self.store.scope(self.tenant, scope) is None:
            raise NotFound(f"no scope named {validation.clip(scope)}")


async def check_schema(text: bytes, last: Schema | None, mode: Compatibility) -> Comparison:
    """Refuses a schema that cannot be compiled, and compares it with the last version."""
    if last is None and len(text) <= SMALL_SCHEMA_BYTES:
        compile_schema(decode_json(text))
        return Comparison()
    old = None if last is None else decode_json(bytes(last.schema))
    return await check_in_process(decode_json(text), old, mode)


def read_schema_text(schema: Any) -> bytes:
    """Returns the JSON text of a schema within the limits. Bytes are taken as JSON."""
    try:
        given = schema if isinstance(schema, bytes) else encode(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the schema cannot be written as JSON: {error}") from None
    return encode(parse_schema(given))


def read_compatibility(given: Compatibility | None, last: Schema | None) -> Compatibility:
    if given is None:
        return "backward" if last is None else last.compatibility
    if given not in COMPATIBILITIES:
        expected = ", ".join(COMPATIBILITIES)
        raise InvalidInput(f"compatibility is {validation.clip(given)}; expected one of {expected}")
    return given


def refuse_incompatible(report: SchemaReport) -> None:
    if report.compatible:
        return
    problems = [f"{each.pointer or '/'}: {each.text}" for each in report.breaks]
    if report.failed:
        problems.append(f"{report.failed} of the last {report.tested} bodies do not match it")
    error = SchemaIncompatible(
        f"version {report.version} of schema {report.name!r} is not {report.compatibility}"
        f" compatible: {'; '.join(problems)}"
    )
    error.details = tuple((each.pointer, each.text) for each in report.breaks)
    raise error


def split_reference(reference: str) -> tuple[str, int | None]:
    """Splits `name@3`. Without a version, the last one is meant."""
    name, at, version = reference.partition("@")
    if not at:
        return name, None
    if not (version.isascii() and version.isdecimal() and 0 < int(version[:9]) <= MAX_VERSIONS):
        raise InvalidInput(f"{validation.clip(reference)} is not a schema; write NAME or NAME@3")
    return name, int(version)
