"""Roles and trusts of a topology."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.broker.credentials import ROLE, TRUST, StoredRole
from penstock.broker.documents import decode_document
from penstock.broker.topology.items import (
    StoredTopology,
    Table,
    TargetTopology,
    TopologyBuilder,
    TopologyItem,
    read_name,
    refuse_unknown,
)
from penstock.errors import Forbidden, InvalidInput
from penstock.rules import validation
from penstock.rules.access import ROLES, Trust, parse_grant

# Refuses grants in scopes that the caller may not give.
CheckGrants = Callable[[Sequence[str], Sequence[str]], None]


class RoleKind:
    name = "role"
    documents: tuple[str, ...] = (ROLE,)
    operated: tuple[str, ...] = ()

    def __init__(self, check_grants: CheckGrants) -> None:
        self.check_grants = check_grants

    def read(self, table: Table, scope: str) -> TopologyItem:
        refuse_unknown(table, ("name", "grants"))
        name = read_name(table, "role")
        if name in ROLES:
            raise Forbidden(f"role {name!r} is built in")
        fields = {"name": name, "grants": read_grants(table)}
        return TopologyItem(self.name, "", name, fields)

    def list_stored(self, stored: StoredTopology) -> Iterable[TopologyItem]:
        for document_name, document in stored.documents.get(ROLE, {}).items():
            name = document_name.partition("/")[2]
            grants = decode_document(document, StoredRole).grants
            yield TopologyItem(self.name, "", name, {"name": name, "grants": list(grants)})

    async def resolve(self, item: TopologyItem, target: TargetTopology) -> TopologyItem:
        self.check_grants(item.fields["grants"], ("*",))
        return item

    async def put(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        role = StoredRole(tuple(item.fields["grants"]))
        builder.save(ROLE, f"{builder.stored.tenant}/{item.key}", role)

    def drop(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        builder.deleted_documents.append((ROLE, f"{builder.stored.tenant}/{item.key}"))


class TrustKind:
    name = "trust"
    documents: tuple[str, ...] = (TRUST,)
    operated: tuple[str, ...] = ()

    def __init__(self, check_grants: CheckGrants) -> None:
        self.check_grants = check_grants

    def read(self, table: Table, scope: str) -> TopologyItem:
        refuse_unknown(table, ("trusted", "grants"))
        trusted = table.get("trusted")
        validation.check_name("scope", trusted)
        fields: dict[str, Any] = {"trusted": trusted, "grants": read_grants(table)}
        return TopologyItem(self.name, scope, str(trusted), fields)

    def list_stored(self, stored: StoredTopology) -> Iterable[TopologyItem]:
        for document in stored.documents.get(TRUST, {}).values():
            trust = decode_document(document, Trust)
            fields = {"trusted": trust.trusted, "grants": [str(each) for each in trust.grants]}
            yield TopologyItem(self.name, trust.scope, trust.trusted, fields)

    async def resolve(self, item: TopologyItem, target: TargetTopology) -> TopologyItem:
        target.check_scope(item.scope)
        target.check_scope(item.key)
        self.check_grants(item.fields["grants"], (item.scope,))
        return item

    async def put(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        name = f"{builder.stored.tenant}/{item.scope}/{item.key}"
        builder.save(TRUST, name, make_trust(item))

    def drop(self, item: TopologyItem, builder: TopologyBuilder) -> None:
        name = f"{builder.stored.tenant}/{item.scope}/{item.key}"
        builder.deleted_documents.append((TRUST, name))


def read_grants(table: Table) -> list[str]:
    grants = table.get("grants")
    if not isinstance(grants, list) or not all(isinstance(each, str) for each in grants):
        raise InvalidInput("grants must be a list of texts such as 'publish:orders*'")
    return [str(parse_grant(each)) for each in grants]


def make_trust(item: TopologyItem) -> Trust:
    return Trust(item.scope, item.key, tuple(map(parse_grant, item.fields["grants"])))
