"""Schemas of message bodies, and their bindings to queues."""

from typing import Literal, TypeAlias

from msgspec import Raw, Struct

from penstock.model.message import Moment

# Kinds of documents.
SCHEMA = "schema"
BINDING = "binding"
# The format of these documents. A process refuses to govern by a newer one.
FORMAT = 1

Compatibility: TypeAlias = Literal["none", "backward", "forward", "full"]


class Schema(Struct, frozen=True, kw_only=True):
    """One version of a JSON Schema. A version never changes."""

    scope: str = "default"
    name: str
    version: int
    schema: Raw
    compatibility: Compatibility = "backward"
    created_at: Moment = 0
    format: int = FORMAT

    @property
    def reference(self) -> str:
        return f"{self.name}@{self.version}"


class Binding(Struct, frozen=True, kw_only=True):
    """Requires the bodies of a queue and its types to fit a version of a schema.

    With `follow`, a new compatible version of the schema replaces this one.
    """

    scope: str = "default"
    queue: str
    # A glob over the types of messages.
    type: str = "*"
    schema: str
    version: int
    follow: bool = False
    format: int = FORMAT

    @property
    def reference(self) -> str:
        return f"{self.schema}@{self.version}"


class Mismatch(Struct, frozen=True):
    """A violation of a schema: a JSON pointer, the keyword and a text without the value."""

    pointer: str
    keyword: str
    text: str
