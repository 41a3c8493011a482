"""Operations on messages that wait: their steps, signals, and callback URLs."""

from typing import Annotated

from msgspec import Meta

from penstock.errors import BodyTooLarge
from penstock.http.context import RequestContext
from penstock.http.operations import OperationTable
from penstock.model.waiting import SignalAnswer
from penstock.rules.access import Right
from penstock.rules.masking import list_hidden, mask_result
from penstock.rules.waiting import MAX_SIGNAL_BYTES
from penstock.wire.fields import Reference, decode_body
from penstock.wire.waiting import NewSignal, SignalView, StepList, make_step_view

waiting = OperationTable("waiting")
SignalName = Annotated[
    str, Meta(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9._-]+$", description="The signal.")
]
CallbackToken = Annotated[
    str, Meta(min_length=1, max_length=400, description="The token of a callback URL.")
]


@waiting.add("GET", "/v1/messages/{reference:path}/steps", "List the steps of a message", StepList)
async def list_steps(call: RequestContext, reference: Reference) -> StepList:
    """Returns what the runs of the message have stored, in order."""
    record = await call.admin.get(reference, scope=call.scope)
    queue = await call.broker.get_queue_by_id(record.message.queue_id)
    hidden = list_hidden(queue, call.reveals)
    found = await call.broker.waits.steps(record.message.id, scope=call.scope)
    return StepList(
        [
            make_step_view(step, mask_result(step.body, hidden) if step.body else b"")
            for step in found.steps
        ]
    )


@waiting.add(
    "POST", "/v1/messages/{reference:path}/signals/{name}", "Send a signal to a message",
    SignalView, takes=NewSignal, right=Right.SIGNAL, status=201, example={"body": {"paid": True}},
)  # fmt: skip
async def send_signal(
    call: RequestContext, reference: Reference, name: SignalName, sent: NewSignal
) -> SignalView:
    """Stores the signal, also before the message waits for it. A repeated one with the same key
    and body is a duplicate."""
    record = await call.admin.get(reference, scope=call.scope)
    body = decode_body(sent.body, sent.body_base64) or b"null"
    answer = await call.broker.waits.signal(record.message.id, name, body, key=sent.key)
    return make_signal_view(answer)


@waiting.add(
    "POST", "/v1/signals/{token}", "Send the signal of a callback URL", SignalView,
    takes="application/json", right=None, public=True, scoped=False,
)  # fmt: skip
async def send_signal_by_token(call: RequestContext, token: CallbackToken) -> SignalView:
    """Takes any body as the value of the signal. A URL sends one signal; a repeated request is
    answered with `duplicate`."""
    call.limit_token(token)
    body = await call.body()
    if len(body) > MAX_SIGNAL_BYTES:
        raise BodyTooLarge(f"a signal can have at most {MAX_SIGNAL_BYTES} bytes")
    answer = await call.service.get_broker("default").waits.signal_by_token(token, body or b"null")
    return make_signal_view(answer)


def make_signal_view(answer: SignalAnswer) -> SignalView:
    return SignalView(str(answer.id), answer.duplicate, answer.state)
