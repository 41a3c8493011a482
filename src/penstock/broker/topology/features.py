"""Subscriptions, alerts, patterns of human steps and their webhooks in a topology."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.broker.alerts import ALERT, ALERT_STATE, check_alert
from penstock.broker.broadcast.fanout import decode_set
from penstock.broker.broadcast.subscriptions import (
    OWN_SETTINGS,
    check_spec,
    make_child_settings,
    make_subscription,
    read_start,
)
from penstock.broker.documents import decode_document
from penstock.broker.topology.items import (
    CheckUrl,
    StoredTopology,
    Table,
    TargetTopology,
    TopologyBuilder,
    TopologyItem,
    encode,
    read_name,
    refuse_unknown,
)
from penstock.broker.topology.kinds import find_differing
from penstock.broker.waiting.human_webhooks import STATE as HUMAN_WEBHOOK_STATE
from penstock.broker.waiting.human_webhooks import check_webhook_name
from penstock.errors import InvalidInput, InvalidState
from penstock.model.alerts import Alert
from penstock.model.broadcast import (
    BROADCAST,
    BROADCAST_CATCH_UP,
    BROADCAST_CLAIM,
    MAX_SUBSCRIPTIONS,
    BroadcastSet,
    BroadcastSubscription,
    make_child_name,
)
from penstock.model.documents import Document
from penstock.model.human import PATTERN, HumanPattern
from penstock.model.human_webhooks import HUMAN_WEBHOOK, HumanWebhook
from penstock.model.message import MICROS_PER_SECOND
from penstock.model.settings import QueueSettings
from penstock.model.store_types import Cursor
from penstock.model.topology import NewTopologyQueue
from penstock.rules.human_patterns import check_pattern


class SubscriptionKind:
    name = "subscription"
    documents: tuple[str, ...] = (BROADCAST,)
    operated: tuple[str, ...] = ()
    own = ("queue", "name", "filter", "ttl", "start")

    def read(self, table: Table, scope: str) -> TopologyItem:
        refuse_unknown(table, (*self.own, *sorted(OWN_SETTINGS)))
        if missing := {"queue", "name"} - table.keys():
            raise InvalidInput(f"{', '.join(sorted(missing))} is missing")
        settings = {key: value for key, value in table.items() if key in OWN_SETTINGS}
        check_spec(table["name"], table.get("filter", ""), table.get("ttl"), settings)
        read_start(table.get("start", "now"))
        key = make_child_name(str(table["queue"]), table["name"])
        fields = {key: value for key, value in table.items() if value != ""}
        return TopologyItem(self.name, scope, key, fields)

    def list_stored(self, stored: StoredTopology) -> Iterable[TopologyItem]:
        for name, document in stored.documents.get(BROADCAST, {}).items():
            _, scope, queue = name.split("/", 2)
            parent = stored.queues.get((scope, queue))
            for each in decode_set(document.body).subscriptions if parent is not None else ():
                key = make_child_name(queue, each.name)
                fields: dict[str, Any] = {"queue": queue, "name": each.name}
                fields |= {"filter": each.filter} if each.filter else {}
                fields |= {"ttl": each.ttl} if each.ttl is not None else {}
                child = stored.queues.get((scope, key))
                if child is not None and parent is not None:
                    fields |= find_own_settings(parent.settings, child.settings)
                yield TopologyItem(self.name, scope, key, fields)

    async def resolve(self, item: TopologyItem, target: TargetTopology) -> TopologyItem:
        parent = target.find_queue(item.scope, item.fields["queue"])
        if parent.kind != "broadcast":
            raise InvalidState(f"queue {item.fields['queue']!r} is not of kind 'broadcast'")
        given = {key: value for key, value in item.fields.items() if key in OWN_SETTINGS}
        kept = {key: value for key, value in item.fields.items() if key not in OWN_SETTINGS}
        if "ttl" in kept:
            kept["ttl"] = float(kept["ttl"])
        if any(stored.id == item.id for stored in self.list_stored(target.stored)):
            # It counts only when the subscription is created.
            kept.pop("start", None)
        own = find_own_settings(parent, make_child_settings(parent, given))
        return replace(item, fields={**kept, **own})

    async def put(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        fields, stored = item.fields, builder.stored
        name = f"{stored.tenant}/{item.scope}/{fields['queue']}"
        version, found = self._get_set(name, builder)
        others = [each for each in found.subscriptions if each.name != fields["name"]]
        before = next((each for each in found.subscriptions if each.name == fields["name"]), None)
        if len(others) >= MAX_SUBSCRIPTIONS:
            raise InvalidState(f"queue {fields['queue']!r} has too many subscriptions")
        asked = BroadcastSubscription(
            name=fields["name"], filter=fields.get("filter", ""), ttl=fields.get("ttl"),
            start=read_start(fields.get("start", "now")),
        )  # fmt: skip
        made = make_subscription(asked, before, version + 1, stored.now)
        self._save_set(name, [*others, made], builder)
        self._put_documents(f"{name}/{made.name}", made, before is None, builder)
        self._put_child(item, builder)

    def _put_documents(
        self, name: str, made: BroadcastSubscription, new: bool, builder: TopologyBuilder
    ) -> None:
        if made.ttl is not None:
            expires_at = builder.stored.now + int(made.ttl * MICROS_PER_SECOND)
            builder.documents[BROADCAST_CLAIM, name] = Document(
                kind=BROADCAST_CLAIM, name=name, body=b"", expires_at=expires_at
            )
        if new and made.catching_up:
            builder.documents[BROADCAST_CATCH_UP, name] = Document(
                kind=BROADCAST_CATCH_UP, name=name, body=encode(Cursor())
            )

    def _put_child(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        parent = builder.target.find_queue(item.scope, item.fields["queue"])
        own = {key: value for key, value in item.fields.items() if key in OWN_SETTINGS}
        settings = make_child_settings(parent, own)
        child = builder.stored.queues.get((item.scope, item.key))
        if child is None:
            builder.new_queues.append(NewTopologyQueue(item.scope, item.key, settings))
        elif child.settings != settings:
            builder.changed_queues.append((child, settings))

    def drop(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        name = f"{builder.stored.tenant}/{item.scope}/{item.fields['queue']}"
        _, found = self._get_set(name, builder)
        rest = [each for each in found.subscriptions if each.name != item.fields["name"]]
        self._save_set(name, rest, builder)
        child = f"{name}/{item.fields['name']}"
        builder.deleted_documents += [(BROADCAST_CLAIM, child), (BROADCAST_CATCH_UP, child)]
        if (queue := builder.stored.queues.get((item.scope, item.key))) is not None:
            builder.deleted_queues.append(queue)

    def _get_set(self, name: str, builder: TopologyBuilder) -> tuple[int, BroadcastSet]:
        """Returns the version that is stored, and the set with what this change made of it."""
        stored = builder.stored.get_document(BROADCAST, name)
        current = builder.documents.get((BROADCAST, name), stored)
        version = 0 if stored is None else stored.version or 0
        return version, BroadcastSet() if current is None else decode_set(current.body)

    def _save_set(
        self, name: str, subscriptions: list[BroadcastSubscription], builder: TopologyBuilder
    ) -> None:
        ordered = sorted(subscriptions, key=lambda each: each.name)
        builder.save(BROADCAST, name, BroadcastSet(tuple(ordered)))


def find_own_settings(parent: QueueSettings, child: QueueSettings) -> dict[str, Any]:
    """Returns the settings of a subscription that are not those of its queue."""
    usual = msgspec.to_builtins(make_child_settings(parent, {}))
    differing = find_differing(msgspec.to_builtins(child), usual)
    return {key: value for key, value in differing.items() if key in OWN_SETTINGS}


class AlertKind:
    name = "alert"
    documents: tuple[str, ...] = (ALERT,)
    operated: tuple[str, ...] = ()

    def __init__(self, check_url: CheckUrl) -> None:
        self.check_url = check_url

    def read(self, table: Table, scope: str) -> TopologyItem:
        known = ("name", "url", "kinds", "severities", "queues", "min_duration", "cooldown")
        refuse_unknown(table, known)
        alert = make_alert(table, scope, "default")
        check_alert(alert)
        return make_alert_item(alert)

    def list_stored(self, stored: StoredTopology) -> Iterable[TopologyItem]:
        for document in stored.documents.get(ALERT, {}).values():
            yield make_alert_item(decode_document(document, Alert))

    async def resolve(self, item: TopologyItem, target: TargetTopology) -> TopologyItem:
        target.check_scope(item.scope)
        self.check_url("url", item.fields["url"])
        return item

    async def put(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        stored = builder.stored
        alert = make_alert(item.fields, item.scope, stored.tenant)
        name = f"{stored.tenant}/{item.scope}/{item.key}"
        builder.save(ALERT, name, replace(alert, created_at=stored.now))

    def drop(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        name = f"{builder.stored.tenant}/{item.scope}/{item.key}"
        builder.deleted_documents += [(ALERT, name), (ALERT_STATE, name)]


def make_alert(table: Table, scope: str, tenant: str) -> Alert:
    try:
        return msgspec.convert({**table, "scope": scope, "tenant": tenant}, Alert)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error)) from None


def make_alert_item(alert: Alert) -> TopologyItem:
    usual = msgspec.to_builtins(Alert(name="", tenant="", scope="", url=""))
    given = find_differing(msgspec.to_builtins(alert), usual)
    left_out = ("tenant", "scope", "created_at")
    fields = {key: value for key, value in given.items() if key not in left_out}
    return TopologyItem("alert", alert.scope, alert.name, fields)


class PatternKind:
    name = "pattern"
    documents: tuple[str, ...] = (PATTERN,)
    operated: tuple[str, ...] = ()

    def read(self, table: Table, scope: str) -> TopologyItem:
        refuse_unknown(table, ("name", "spec", "description"))
        read_name(table, "pattern")
        return make_pattern_item(parse_pattern(table), scope)

    def list_stored(self, stored: StoredTopology) -> Iterable[TopologyItem]:
        for name, document in stored.documents.get(PATTERN, {}).items():
            yield make_pattern_item(decode_document(document, HumanPattern), name.split("/", 2)[1])

    async def resolve(self, item: TopologyItem, target: TargetTopology) -> TopologyItem:
        target.check_scope(item.scope)
        return item

    async def put(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        name = f"{builder.stored.tenant}/{item.scope}/{item.key}"
        before = builder.stored.get_document(PATTERN, name)
        version = 0 if before is None else decode_document(before, HumanPattern).version
        builder.save(PATTERN, name, replace(parse_pattern(item.fields), version=version + 1))

    def drop(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        name = f"{builder.stored.tenant}/{item.scope}/{item.key}"
        builder.deleted_documents.append((PATTERN, name))


def parse_pattern(table: Table) -> HumanPattern:
    try:
        pattern = msgspec.convert(dict(table), HumanPattern)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error)) from None
    check_pattern(pattern)
    return pattern


def make_pattern_item(pattern: HumanPattern, scope: str) -> TopologyItem:
    fields: dict[str, Any] = {"name": pattern.name, "spec": pattern.spec}
    if pattern.description:
        fields["description"] = pattern.description
    return TopologyItem("pattern", scope, pattern.name, fields)


class HumanWebhookKind:
    """Its letters may have links that decide, so declaring one requires the right access."""

    name = "human_webhook"
    documents: tuple[str, ...] = (HUMAN_WEBHOOK,)
    operated: tuple[str, ...] = ()

    def __init__(self, check_url: CheckUrl) -> None:
        self.check_url = check_url

    def read(self, table: Table, scope: str) -> TopologyItem:
        refuse_unknown(table, ("name", "url", "links"))
        webhook = make_human_webhook(table, scope, "default")
        check_webhook_name(webhook.name)
        return make_human_webhook_item(webhook)

    def list_stored(self, stored: StoredTopology) -> Iterable[TopologyItem]:
        for document in stored.documents.get(HUMAN_WEBHOOK, {}).values():
            yield make_human_webhook_item(decode_document(document, HumanWebhook))

    async def resolve(self, item: TopologyItem, target: TargetTopology) -> TopologyItem:
        target.check_scope(item.scope)
        self.check_url("url", item.fields["url"])
        return item

    async def put(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        stored = builder.stored
        webhook = make_human_webhook(item.fields, item.scope, stored.tenant)
        name = f"{stored.tenant}/{item.scope}/{item.key}"
        before = stored.get_document(HUMAN_WEBHOOK, name)
        created_at = stored.now
        if before is not None:
            created_at = decode_document(before, HumanWebhook).created_at
        builder.save(HUMAN_WEBHOOK, name, replace(webhook, created_at=created_at))

    def drop(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        name = f"{builder.stored.tenant}/{item.scope}/{item.key}"
        builder.deleted_documents += [(HUMAN_WEBHOOK, name), (HUMAN_WEBHOOK_STATE, name)]


def make_human_webhook(table: Table, scope: str, tenant: str) -> HumanWebhook:
    try:
        return msgspec.convert({**table, "scope": scope, "tenant": tenant}, HumanWebhook)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error)) from None


def make_human_webhook_item(webhook: HumanWebhook) -> TopologyItem:
    fields: dict[str, Any] = {"name": webhook.name, "url": webhook.url}
    if webhook.links:
        fields["links"] = True
    return TopologyItem("human_webhook", webhook.scope, webhook.name, fields)
