"""Wire types of schemas and their bindings."""

from typing import Annotated, Any

from msgspec import Meta, Raw, Struct

from penstock.model.schemas import Binding, Compatibility, Schema
from penstock.model.structs import copy_fields
from penstock.rules.schema_compat import FieldBreak
from penstock.wire.fields import Time, to_datetime

SchemaVersion = Annotated[int, Meta(ge=1, le=1_000, description="Version; by default the last.")]
TypeGlob = Annotated[
    str,
    Meta(min_length=1, max_length=120, description="Types of messages; `*` stands for any text."),
]
SchemaReference = Annotated[
    str, Meta(min_length=1, max_length=140, description="`name@version`, or `name` for the last.")
]


class NewSchema(Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON Schema. `compatibility` says what a new version must not break; by default that of
    the last version, or `backward`."""

    schema: Raw
    compatibility: Compatibility | None = None


class SchemaView(Struct, frozen=True):
    """One version of a schema."""

    name: str
    scope: str
    version: int
    compatibility: Compatibility
    created_at: Time
    schema: Raw


class SchemaList(Struct, frozen=True, omit_defaults=True):
    schemas: list[SchemaView]
    cursor: str | None = None


class SchemaReportView(Struct, frozen=True):
    """The comparison of a version with the latest. `breaks` names fields and the values that are no
    longer accepted. For fields in `unproven` there is no proof: then `tested` stored bodies were
    checked, and `failed` of them do not match."""

    name: str
    version: int
    compatibility: Compatibility
    compatible: bool
    breaks: list[FieldBreak]
    unproven: list[str]
    tested: int
    failed: int


class NewBinding(Struct, frozen=True, forbid_unknown_fields=True):
    """Binds a schema to the messages of a queue. With `follow`, compatible new versions take
    effect at once."""

    schema: SchemaReference
    type: TypeGlob = "*"
    follow: bool = False


class BindingView(Struct, frozen=True):
    queue: str
    scope: str
    type: str
    schema: str
    version: int
    follow: bool


class BindingList(Struct, frozen=True, omit_defaults=True):
    bindings: list[BindingView]
    cursor: str | None = None


class SchemaDraft(Struct, frozen=True):
    """A schema that was inferred from stored bodies, and how many there were."""

    schema: dict[str, Any]
    bodies: int


def make_schema_view(schema: Schema) -> SchemaView:
    return copy_fields(SchemaView, schema, created_at=to_datetime(schema.created_at))


def make_binding_view(binding: Binding) -> BindingView:
    return copy_fields(BindingView, binding)
