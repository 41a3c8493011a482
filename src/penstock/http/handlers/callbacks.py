"""Routes for callbacks: the delivery log and the signing secret."""

from penstock.http.auth.principal import Extent
from penstock.http.routing import Alone, Called, Reference, RouteTable
from penstock.model.queue import CALLBACK
from penstock.rules.access import Right
from penstock.wire.records import MessagePage, make_message_view
from penstock.wire.webhooks import CallbackSecret, make_secret_view

callbacks = RouteTable("callbacks")


@callbacks.add(
    "GET", "/v1/messages/{reference:path}/callbacks", "List callbacks of a message", MessagePage
)
async def log(call: Called, reference: Reference) -> MessagePage:
    """Each callback is a message: `due_at` is its next attempt, `timeline` lists all attempts."""
    found = await call.admin.callbacks(reference, scope=call.scope)
    return MessagePage([make_message_view(record, CALLBACK, timeline=True) for record in found])


@callbacks.add(
    "GET", "/v1/callbacks/secret", "Get the callback signing secret", CallbackSecret,
    right=Right.ACCESS, extent=Extent.TENANT,
)  # fmt: skip
async def get_secret(call: Alone) -> CallbackSecret:
    return make_secret_view(await call.service.signing.secrets(call.caller.tenant))


@callbacks.add(
    "POST", "/v1/callbacks/secret/rotate", "Rotate the callback signing secret", CallbackSecret,
    right=Right.ACCESS, extent=Extent.TENANT,
)  # fmt: skip
async def rotate_secret(call: Alone) -> CallbackSecret:
    """The previous secret stays valid for a day."""
    return make_secret_view(await call.service.signing.rotate(call.caller.tenant))
