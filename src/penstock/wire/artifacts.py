"""Files that travel with a result."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

FileName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]


class InlineArtifact(Struct, frozen=True, forbid_unknown_fields=True):
    """A small file beside the result; a large one is better uploaded."""

    name: FileName
    content: Annotated[str, Meta(description="In base64.")]


class ArtifactView(Struct, frozen=True):
    """`size` is in bytes."""

    name: str
    size: int


class ArtifactsView(Struct, frozen=True):
    """By name; none while the message has not completed or failed."""

    artifacts: list[ArtifactView]
