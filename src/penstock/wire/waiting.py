"""Wire types of steps and signals."""

from msgspec import UNSET, Struct

from penstock.model.message import State
from penstock.model.structs import copy_fields
from penstock.model.waiting import StepKind, StepRecord
from penstock.wire.fields import (
    Json,
    Time,
    decode_body,
    encode_body,
    to_datetime,
    to_moment,
    to_optional_datetime,
    to_optional_moment,
)


class StepView(Struct, frozen=True, omit_defaults=True):
    """A stored step of a message. One that is not done waits until `due_at`, if it has one."""

    name: str
    key: str
    kind: StepKind
    done: bool
    at: Time
    due_at: Time | None = None
    # As base64 if it is no JSON.
    result: Json = UNSET
    result_base64: str | None = None


class StepList(Struct, frozen=True):
    steps: list[StepView]


class NewSignal(Struct, frozen=True, forbid_unknown_fields=True):
    """A signal. Sending it again with the same `key` and body has no effect."""

    body: Json = UNSET
    body_base64: str | None = None
    key: str | None = None


class SignalView(Struct, frozen=True, omit_defaults=True):
    """A signal that is stored. The message receives it when its run asks for it."""

    id: str
    duplicate: bool = False
    state: State | None = None


def make_step_view(step: StepRecord, body: bytes) -> StepView:
    """`body` is the result as the caller may see it."""
    result, base64 = encode_body(body)
    return copy_fields(
        StepView,
        step,
        at=to_datetime(step.at),
        due_at=to_optional_datetime(step.due_at),
        result=result,
        result_base64=base64,
    )


def read_step(view: StepView, position: int) -> StepRecord:
    return copy_fields(
        StepRecord,
        view,
        position=position,
        body=decode_body(view.result, view.result_base64),
        due_at=to_optional_moment(view.due_at),
        at=to_moment(view.at),
    )
