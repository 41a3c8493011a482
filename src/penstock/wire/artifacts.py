"""Wire types of artifacts."""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

FileName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]


class InlineArtifact(Struct, frozen=True, forbid_unknown_fields=True):
    """A small file sent with the result. Upload large files instead."""

    name: FileName
    content: Annotated[str, Meta(description="Base64-encoded content.")]


class ArtifactView(Struct, frozen=True):
    """`size` is in bytes."""

    name: str
    size: int


class ArtifactsView(Struct, frozen=True):
    """Sorted by name. Empty until the message completes or fails."""

    artifacts: list[ArtifactView]
