"""The schema registry over HTTP."""

from typing import Any
from urllib.parse import quote

from msgspec import Raw

from penstock.broker.schemas.registry import SchemaReport, read_schema_text
from penstock.client.transport import RemoteGroup
from penstock.model.schemas import Binding, Compatibility, Schema
from penstock.model.structs import copy_fields
from penstock.wire.fields import to_moment
from penstock.wire.schemas import (
    BindingList,
    BindingView,
    NewBinding,
    NewSchema,
    SchemaDraft,
    SchemaList,
    SchemaReportView,
    SchemaView,
)


class RemoteSchemas(RemoteGroup):
    """Implements `SchemasInterface` by HTTP calls."""

    async def add(
        self,
        name: str,
        schema: Any,
        *,
        compatibility: Compatibility | None = None,
        scope: str = "default",
    ) -> Schema:
        sent = make_new_schema(schema, compatibility)
        added = await self.send("POST", schema_path(name), sent, gives=SchemaView, scope=scope)
        return make_schema(added)

    async def check(
        self,
        name: str,
        schema: Any,
        *,
        compatibility: Compatibility | None = None,
        scope: str = "default",
    ) -> SchemaReport:
        sent = make_new_schema(schema, compatibility)
        path = f"{schema_path(name)}/check"
        report = await self.send("POST", path, sent, gives=SchemaReportView, scope=scope)
        breaks, unproven = tuple(report.breaks), tuple(report.unproven)
        return copy_fields(SchemaReport, report, breaks=breaks, unproven=unproven)

    async def list_schemas(self, *, scope: str = "default") -> list[Schema]:
        pages = self.transport.read_pages("/v1/schemas", SchemaList, {"scope": scope})
        return [make_schema(each) async for page in pages for each in page.schemas]

    async def get(self, name: str, version: int | None = None, *, scope: str = "default") -> Schema:
        query = {"scope": scope} | ({} if version is None else {"version": str(version)})
        found = await self.send("GET", schema_path(name), gives=SchemaView, query=query)
        return make_schema(found)

    async def delete(self, name: str, *, scope: str = "default") -> None:
        await self.transport.exchange("DELETE", schema_path(name), scope=scope)

    async def bind(
        self,
        queue: str,
        schema: str,
        *,
        type: str = "*",
        follow: bool = False,
        scope: str = "default",
    ) -> Binding:
        bound = await self.send(
            "PUT", binding_path(queue), NewBinding(schema, type, follow), gives=BindingView,
            scope=scope,
        )  # fmt: skip
        return make_binding(bound)

    async def unbind(self, queue: str, *, type: str = "*", scope: str = "default") -> None:
        query = {"scope": scope, "type": type}
        await self.transport.exchange("DELETE", binding_path(queue), query=query)

    async def list_bindings(
        self, queue: str | None = None, *, scope: str = "default"
    ) -> list[Binding]:
        query = {"scope": scope} | ({} if queue is None else {"queue": queue})
        pages = self.transport.read_pages("/v1/bindings", BindingList, query)
        return [make_binding(each) async for page in pages for each in page.bindings]

    async def draft(
        self, queue: str, *, type: str = "*", scope: str = "default"
    ) -> tuple[dict[str, Any], int]:
        drafted = await self.send(
            "GET", f"{binding_path(queue)}/draft", gives=SchemaDraft,
            query={"scope": scope, "type": type},
        )  # fmt: skip
        return drafted.schema, drafted.bodies


def schema_path(name: str) -> str:
    return f"/v1/schemas/{quote(name, safe='')}"


def binding_path(queue: str) -> str:
    return f"/v1/queues/{quote(queue, safe='')}/schemas"


def make_new_schema(schema: Any, compatibility: Compatibility | None) -> NewSchema:
    return NewSchema(Raw(read_schema_text(schema)), compatibility)


def make_schema(view: SchemaView) -> Schema:
    return copy_fields(Schema, view, created_at=to_moment(view.created_at))


def make_binding(view: BindingView) -> Binding:
    return copy_fields(Binding, view)
