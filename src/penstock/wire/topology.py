"""Wire types of topologies."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct


class TopologyRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A topology: as an object, or as the text of a TOML file. Errors name the line of a text."""

    topology: dict[str, Any] | None = None
    toml: str | None = None


class TopologyFieldView(Struct, frozen=True):
    """A field that differs. Null means that it has its default."""

    field: str
    old: Any = None
    new: Any = None


class TopologyStepView(Struct, frozen=True):
    """One step of a plan. `leave`: the file no longer declares it, and `prune` is not
    set. `keep`: a queue with unfinished messages is not removed."""

    step: Literal["create", "change", "adopt", "remove", "leave", "keep"]
    kind: str
    scope: str
    key: str
    changes: list[TopologyFieldView] = []


class TopologyPlanView(Struct, frozen=True):
    """`changes` says whether something differs, `applied` whether it was changed now."""

    name: str
    steps: list[TopologyStepView]
    unchanged: int
    changes: bool
    applied: bool


class TopologyDocument(Struct, frozen=True):
    """Everything that is declared, in the form of a topology file."""

    topology: Annotated[dict[str, Any], Meta(description="Lists of objects by kind.")]
