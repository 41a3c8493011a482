"""Schemas, bindings and rules of a topology."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from penstock.broker.documents import decode_document
from penstock.broker.policy import make_binding_name, make_schema_name
from penstock.broker.routing.admin import DeclaredTopology, RuleAdmin
from penstock.broker.schemas.registry import (
    MAX_TYPE_LENGTH,
    SchemaRegistry,
    check_schema,
    read_compatibility,
    read_schema_text,
    refuse_incompatible,
    split_reference,
)
from penstock.broker.topology.access import make_trust
from penstock.broker.topology.items import (
    CheckUrl,
    StoredTopology,
    Table,
    TargetTopology,
    TopologyBuilder,
    TopologyItem,
    drop_empty,
    make_settings,
    read_name,
    refuse_unknown,
)
from penstock.errors import InvalidInput, NotFound
from penstock.model.human import HumanPattern
from penstock.model.queue import HUMAN, HUMAN_SETTINGS, Queue, Scope
from penstock.model.routing import RULE, RULE_VERSION, Rule, StoredRule
from penstock.model.schemas import BINDING, SCHEMA, Binding, Schema
from penstock.model.topology import NewTopologyQueue
from penstock.rules import validation
from penstock.rules.rule_checks import list_patterns, parse_rule
from penstock.rules.schemas import decode_json


class SchemaKind:
    name = "schema"
    documents: tuple[str, ...] = (SCHEMA,)
    operated: tuple[str, ...] = ()

    def __init__(self, schemas: SchemaRegistry) -> None:
        self.schemas = schemas

    def read(self, table: Table, scope: str) -> TopologyItem:
        refuse_unknown(table, ("name", "schema", "compatibility"))
        name = read_name(table, "schema")
        given = table.get("schema")
        if given is None:
            raise InvalidInput("schema is missing; write a table, or JSON as text")
        text = read_schema_text(given.encode() if isinstance(given, str) else given)
        mode = read_compatibility(table.get("compatibility"), None)
        fields = {"name": name, "compatibility": mode, "schema": text.decode()}
        return TopologyItem(self.name, scope, name, fields)

    def list_stored(self, stored: StoredTopology) -> Iterable[TopologyItem]:
        for (scope, name), schema in find_last_schemas(stored).items():
            fields = {
                "name": name,
                "compatibility": schema.compatibility,
                "schema": bytes(schema.schema).decode(),
            }
            yield TopologyItem(self.name, scope, name, fields)

    async def resolve(self, item: TopologyItem, target: TargetTopology) -> TopologyItem:
        target.check_scope(item.scope)
        last = find_last_schemas(target.stored).get((item.scope, item.key))
        text, mode = item.fields["schema"].encode(), item.fields["compatibility"]
        if last is not None and (bytes(last.schema), last.compatibility) == (text, mode):
            return item
        if last is None:
            await check_schema(text, None, mode)
            return item
        report = await self.schemas.check(item.key, text, compatibility=mode, scope=item.scope)
        if mode != "none":
            refuse_incompatible(report)
        if report.compatible:
            target.compatible.add((item.scope, item.key))
        return item

    async def put(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        stored = builder.stored
        version = find_schema_version(item.scope, item.key, builder.target)
        added = Schema(
            scope=item.scope, name=item.key, version=version,
            schema=Raw(item.fields["schema"].encode()),
            compatibility=item.fields["compatibility"], created_at=stored.now,
        )  # fmt: skip
        name = make_schema_name(stored.tenant, item.scope, item.key, version)
        builder.save(SCHEMA, name, added)
        if (item.scope, item.key) in builder.target.compatible:
            for binding in list_bindings(stored):
                same = (binding.scope, binding.schema) == (item.scope, item.key)
                if same and binding.follow:
                    save_binding(replace(binding, version=version), builder)

    def drop(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        prefix = f"{builder.stored.tenant}/{item.scope}/{item.key}@"
        names = builder.stored.documents.get(SCHEMA, {})
        builder.deleted_documents += [(SCHEMA, name) for name in names if name.startswith(prefix)]


def find_last_schemas(stored: StoredTopology) -> dict[tuple[str, str], Schema]:
    """Returns the last version of each schema, by scope and name. Names sort by version."""
    if SCHEMA not in stored.memo:
        documents = stored.documents.get(SCHEMA, {})
        schemas = [decode_document(documents[name], Schema) for name in sorted(documents)]
        stored.memo[SCHEMA] = {(each.scope, each.name): each for each in schemas}
    found: dict[tuple[str, str], Schema] = stored.memo[SCHEMA]
    return found


def find_schema_version(scope: str, name: str, target: TargetTopology) -> int:
    """Returns the last version as it will be."""
    last = find_last_schemas(target.stored).get((scope, name))
    item = target.items.get(("schema", scope, name))
    if item is None:
        if last is None:
            raise NotFound(f"no schema named {validation.clip(name)} in scope {scope!r}")
        return last.version
    wanted = item.fields["schema"].encode(), item.fields["compatibility"]
    if last is None:
        return 1
    return last.version + (wanted != (bytes(last.schema), last.compatibility))


class BindingKind:
    name = "binding"
    documents: tuple[str, ...] = (BINDING,)
    operated: tuple[str, ...] = ()

    def read(self, table: Table, scope: str) -> TopologyItem:
        refuse_unknown(table, ("queue", "type", "schema", "follow"))
        for field in ("queue", "schema"):
            validation.check_text(field, table.get(field, ""), MAX_TYPE_LENGTH + 20)
        type = table.get("type", "*")
        validation.check_text("type", type, MAX_TYPE_LENGTH)
        split_reference(table["schema"])
        fields = {**drop_empty(table), "type": type}
        return TopologyItem(self.name, scope, f"{table['queue']} {type}", fields)

    def list_stored(self, stored: StoredTopology) -> Iterable[TopologyItem]:
        for each in list_bindings(stored):
            fields: dict[str, Any] = {"queue": each.queue, "type": each.type}
            fields["schema"] = each.reference
            if each.follow:
                fields["follow"] = True
            yield TopologyItem(self.name, each.scope, f"{each.queue} {each.type}", fields)

    async def resolve(self, item: TopologyItem, target: TargetTopology) -> TopologyItem:
        target.find_queue(item.scope, item.fields["queue"])
        name, version = split_reference(item.fields["schema"])
        last = find_schema_version(item.scope, name, target)
        if version is not None and version > last:
            raise NotFound(f"no schema named {name}@{version}; the last version is {last}")
        reference = f"{name}@{last if version is None else version}"
        return replace(item, fields={**item.fields, "schema": reference})

    async def put(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        name, version = split_reference(item.fields["schema"])
        binding = Binding(
            scope=item.scope, queue=item.fields["queue"], type=item.fields["type"], schema=name,
            version=version or 1, follow=item.fields.get("follow", False),
        )  # fmt: skip
        save_binding(binding, builder)

    def drop(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        name = make_binding_name(
            builder.stored.tenant, item.scope, item.fields["queue"], item.fields["type"]
        )
        builder.deleted_documents.append((BINDING, name))


def list_bindings(stored: StoredTopology) -> list[Binding]:
    documents = stored.documents.get(BINDING, {}).values()
    return [decode_document(each, Binding) for each in documents]


def save_binding(binding: Binding, builder: TopologyBuilder) -> None:
    name = make_binding_name(builder.stored.tenant, binding.scope, binding.queue, binding.type)
    builder.save(BINDING, name, binding)


class RuleKind:
    name = "rule"
    documents: tuple[str, ...] = (RULE, RULE_VERSION)
    operated: tuple[str, ...] = ("enabled",)

    def __init__(self, rules: RuleAdmin, check_url: CheckUrl) -> None:
        self.rules = rules
        self.check_url = check_url

    def read(self, table: Table, scope: str) -> TopologyItem:
        item = make_rule_item(parse_rule({**table, "scope": scope}))
        if "enabled" in table:
            return replace(item, fields={**item.fields, "enabled": table["enabled"]})
        return item

    def list_stored(self, stored: StoredTopology) -> Iterable[TopologyItem]:
        for document in stored.documents.get(RULE, {}).values():
            rule = decode_document(document, StoredRule).rule
            item = make_rule_item(rule)
            yield replace(item, fields={**item.fields, "enabled": rule.enabled})

    async def resolve(self, item: TopologyItem, target: TargetTopology) -> TopologyItem:
        target.check_scope(item.scope)
        rule = make_rule(item)
        await self.rules.check(rule, find_declared(target))
        for action in rule.do:
            if action.callback is not None:
                self.check_url("callback", action.callback)
        return item

    async def put(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        rule = make_rule(item)
        if list_patterns(rule):
            open_inbox(rule.scope, builder)
        _, change = await self.rules.prepare(rule)
        for document in (*change.guards, *change.saves):
            builder.documents[document.kind, document.name] = document
        builder.deleted_documents += change.deletes

    def drop(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        name = f"{builder.stored.tenant}/{item.scope}/{item.key}"
        versions = builder.stored.documents.get(RULE_VERSION, {})
        builder.deleted_documents.append((RULE, name))
        builder.deleted_documents += [
            (RULE_VERSION, each) for each in versions if each.startswith(f"{name}@")
        ]


def open_inbox(scope: str, builder: TopologyBuilder) -> None:
    """Makes the queue of human steps, unless the scope has one."""
    queue = NewTopologyQueue(scope, HUMAN, HUMAN_SETTINGS)
    if (scope, HUMAN) not in builder.stored.queues and queue not in builder.new_queues:
        builder.new_queues.append(queue)


def make_rule_item(rule: Rule) -> TopologyItem:
    given = decode_json(msgspec.json.encode(rule))
    fields = {key: value for key, value in given.items() if key not in ("scope", "enabled")}
    return TopologyItem("rule", rule.scope, rule.name, {"name": rule.name, **fields})


def make_rule(item: TopologyItem) -> Rule:
    return parse_rule({**item.fields, "scope": item.scope})


def find_declared(target: TargetTopology) -> DeclaredTopology:
    """Returns what rules of the file may refer to."""
    if RULE not in target.stored.memo:
        items, tenant = target.items.values(), target.stored.tenant
        queues = {
            (item.scope, item.key): Queue(
                0, Scope(0, tenant, item.scope), item.key, settings=make_settings(item)
            )
            for item in items
            if item.kind == "queue"
        }
        trusts = [make_trust(item) for item in items if item.kind == "trust"]
        rules = [make_rule(item) for item in items if item.kind == "rule"]
        patterns = {
            (item.scope, item.key): msgspec.convert(item.fields, HumanPattern)
            for item in items
            if item.kind == "pattern"
        }
        target.stored.memo[RULE] = DeclaredTopology(queues, trusts, rules, patterns)
    declared: DeclaredTopology = target.stored.memo[RULE]
    return declared
