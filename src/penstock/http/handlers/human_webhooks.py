"""Routes of webhooks about human steps."""

from penstock.broker.waiting.human_webhooks import HumanWebhooks
from penstock.errors import InvalidInput
from penstock.http.auth.principal import Extent
from penstock.http.context import RequestContext
from penstock.http.operations import OperationTable
from penstock.model.human_webhooks import HumanWebhookState, HumanWebhookStatus
from penstock.rules.access import Right
from penstock.wire.human_webhooks import (
    HumanWebhookList,
    HumanWebhookView,
    NewHumanWebhook,
    WebhookName,
    make_webhook_view,
)

human_webhooks = OperationTable("inbox")


def own_webhooks(call: RequestContext) -> HumanWebhooks:
    call.check(Right.ACCESS, "*")
    return HumanWebhooks(call.service.store, call.caller.tenant)


@human_webhooks.add(
    "GET", "/v1/human-webhooks", "List webhooks about human steps", HumanWebhookList,
    right=Right.ACCESS, extent=Extent.SCOPE,
)  # fmt: skip
async def list_human_webhooks(call: RequestContext) -> HumanWebhookList:
    found = await own_webhooks(call).list(scope=call.scope)
    return HumanWebhookList([make_webhook_view(each) for each in found])


@human_webhooks.add(
    "POST", "/v1/human-webhooks", "Create a webhook about human steps", HumanWebhookView,
    takes=NewHumanWebhook, status=201, right=Right.ACCESS, extent=Extent.SCOPE,
    example={"name": "chat", "url": "https://example.org/hook"},
)  # fmt: skip
async def create_human_webhook(call: RequestContext, new: NewHumanWebhook) -> HumanWebhookView:
    """Sends `human.opened`, `human.reminded`, `human.escalated` and `human.decided` of new steps,
    signed according to Standard Webhooks, with a `text` for chats. With `links`, each assigned
    person has a link that decides."""
    call.service.limits.reach.refuse("url", new.url)
    if new.links and not call.service.limits.public_url:
        raise InvalidInput("links need the public URL of the server; start it with --public-url")
    made = await own_webhooks(call).add(new.name, new.url, links=new.links, scope=call.scope)
    return make_webhook_view(HumanWebhookStatus(made, HumanWebhookState()))


@human_webhooks.add(
    "DELETE", "/v1/human-webhooks/{name}", "Delete a webhook about human steps", None, status=204,
    right=Right.ACCESS, extent=Extent.SCOPE,
)  # fmt: skip
async def delete_human_webhook(call: RequestContext, name: WebhookName) -> None:
    await own_webhooks(call).delete(name, scope=call.scope)
