"""Operations on schemas and their bindings to queues."""

from operator import attrgetter

from penstock.broker.schemas.registry import SchemaRegistry, SchemaReport
from penstock.http.auth.principal import RightScope
from penstock.http.context import RequestContext, cut_page
from penstock.http.operations import OperationTable
from penstock.model.structs import copy_fields
from penstock.rules.access import Right
from penstock.wire.fields import Cursor, Name, PageLimit
from penstock.wire.schemas import (
    BindingList,
    BindingView,
    NewBinding,
    NewSchema,
    SchemaDraft,
    SchemaList,
    SchemaReportView,
    SchemaVersion,
    SchemaView,
    TypeGlob,
    make_binding_view,
    make_schema_view,
)

schemas = OperationTable("schemas")
EXAMPLE = {"schema": {"type": "object", "required": ["id"]}, "compatibility": "backward"}


def get_registry(call: RequestContext) -> SchemaRegistry:
    return SchemaRegistry(call.admin)


@schemas.add("GET", "/v1/schemas", "List schemas", SchemaList, extent=RightScope.SCOPE)
async def list_schemas(
    call: RequestContext, limit: PageLimit = 100, cursor: Cursor | None = None
) -> SchemaList:
    """Lists the last version of each schema."""
    found = await get_registry(call).list_schemas(scope=call.scope)
    page, next_cursor = cut_page(call, found, attrgetter("name"), limit, cursor, "schemas")
    return SchemaList([make_schema_view(each) for each in page], next_cursor)


@schemas.add("GET", "/v1/schemas/{name}", "Get a schema", SchemaView, extent=RightScope.SCOPE)
async def get_schema(
    call: RequestContext, name: Name, version: SchemaVersion | None = None
) -> SchemaView:
    return make_schema_view(await get_registry(call).get(name, version, scope=call.scope))


@schemas.add("POST", "/v1/schemas/{name}", "Add a version of a schema", SchemaView,
             takes=NewSchema, status=201, extent=RightScope.SCOPE, example=EXAMPLE)  # fmt: skip
async def add_schema(call: RequestContext, name: Name, new: NewSchema) -> SchemaView:
    """Adds nothing if it equals the last version. A version that breaks the compatibility is
    refused with 409 SCHEMA_INCOMPATIBLE."""
    added = await get_registry(call).add(
        name, new.schema, compatibility=new.compatibility, scope=call.scope
    )
    return make_schema_view(added)


@schemas.add("POST", "/v1/schemas/{name}/check", "Check a version of a schema", SchemaReportView,
             takes=NewSchema, right=Right.READ, extent=RightScope.SCOPE,
             example=EXAMPLE)  # fmt: skip
async def check_schema(call: RequestContext, name: Name, new: NewSchema) -> SchemaReportView:
    """Compares it with the last version, and adds nothing."""
    report = await get_registry(call).check(
        name, new.schema, compatibility=new.compatibility, scope=call.scope
    )
    return make_report_view(report)


def make_report_view(report: SchemaReport) -> SchemaReportView:
    return copy_fields(
        SchemaReportView,
        report,
        compatible=report.compatible,
        breaks=list(report.breaks),
        unproven=list(report.unproven),
    )


@schemas.add("DELETE", "/v1/schemas/{name}", "Delete a schema", None, status=204,
             extent=RightScope.SCOPE)  # fmt: skip
async def delete_schema(call: RequestContext, name: Name) -> None:
    """Deletes all versions. A schema that is bound to a queue is refused."""
    await get_registry(call).delete(name, scope=call.scope)


@schemas.add("GET", "/v1/bindings", "List bindings of schemas", BindingList)
async def list_bindings(
    call: RequestContext,
    queue: Name | None = None,
    limit: PageLimit = 100,
    cursor: Cursor | None = None,
) -> BindingList:
    found = await get_registry(call).list_bindings(queue, scope=call.scope)
    page, next_cursor = cut_page(
        call, found, lambda each: f"{each.queue} {each.type}", limit, cursor, "bindings", queue
    )
    return BindingList([make_binding_view(each) for each in page], next_cursor)


@schemas.add("PUT", "/v1/queues/{queue}/schemas", "Bind a schema to a queue", BindingView,
             takes=NewBinding, example={"schema": "order@3", "type": "order.*"})  # fmt: skip
async def bind_schema(call: RequestContext, queue: Name, new: NewBinding) -> BindingView:
    """Replaces the binding of the same queue and type."""
    bound = await get_registry(call).bind(
        queue, new.schema, type=new.type, follow=new.follow, scope=call.scope
    )
    return make_binding_view(bound)


@schemas.add("DELETE", "/v1/queues/{queue}/schemas", "Unbind a schema from a queue", None,
             status=204)  # fmt: skip
async def unbind_schema(call: RequestContext, queue: Name, type: TypeGlob = "*") -> None:
    await get_registry(call).unbind(queue, type=type, scope=call.scope)


@schemas.add("GET", "/v1/queues/{queue}/schemas/draft", "Draft a schema from stored bodies",
             SchemaDraft)  # fmt: skip
async def draft_schema(call: RequestContext, queue: Name, type: TypeGlob = "*") -> SchemaDraft:
    """Infers types and required fields from the last 1,000 bodies of the queue."""
    schema, bodies = await get_registry(call).draft(queue, type=type, scope=call.scope)
    return SchemaDraft(schema, bodies)
