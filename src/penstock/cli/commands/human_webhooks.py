"""The `human-webhook` commands: webhooks about human steps."""

import click

from penstock.broker.local import Broker
from penstock.cli.context import CommandContext, command
from penstock.cli.output import format_ago
from penstock.model.human_webhooks import HumanWebhookState, HumanWebhookStatus
from penstock.wire.human_webhooks import make_webhook_view


@click.group("human-webhook")
def human_webhook() -> None:
    """Send notifications about human steps to webhooks.

    A running server sends them when a step opens, is due or has ended, signed like callbacks. The
    body has a `text` field for chat services.

    \b
    penstock human-webhook add chat --to https://example.org/hook
    penstock human-webhook list
    """


@command(human_webhook, "add")
@click.argument("name")
@click.option("--to", "to", required=True, metavar="URL", help="URL to send notifications to.")
@click.option("--links", is_flag=True, help="Add a link for each assigned person.")
def add(session: CommandContext, name: str, to: str, links: bool) -> None:
    """Create a webhook for human steps that open from now on.

    A link decides as the person it was made for, so only those people may receive the
    notifications. Links require a server with --public-url.

    \b
    penstock human-webhook add chat --to https://example.org/hook
    penstock human-webhook add mail --to https://example.org/hook --links
    """

    async def work(broker: Broker) -> HumanWebhookStatus:
        made = await broker.inbox.webhooks.add(name, to, links=links, scope=session.scope)
        return HumanWebhookStatus(made, HumanWebhookState())

    made = session.run(work)
    session.print_result(make_webhook_view(made), f"webhook {name} created")


@command(human_webhook, "list")
def list_(session: CommandContext) -> None:
    """List webhooks about human steps and their delivery.

    \b
    penstock human-webhook list
    """
    found, now = session.run_timed(lambda broker: broker.inbox.webhooks.list(scope=session.scope))
    rows = [
        (
            each.webhook.name,
            each.webhook.url,
            "yes" if each.webhook.links else "no",
            format_ago(each.state.last_sent_at, now),
            each.state.last_error,
        )
        for each in found
    ]
    columns = ("webhook", "url", "links", "last", "error")
    session.print_table(columns, rows, "no webhooks", map(make_webhook_view, found))


@command(human_webhook, "delete")
@click.argument("name")
def delete(session: CommandContext, name: str) -> None:
    """Delete a webhook about human steps.

    \b
    penstock human-webhook delete chat
    """
    session.run(lambda broker: broker.inbox.webhooks.delete(name, scope=session.scope))
    session.print_result({"name": name}, f"webhook {name} deleted")


COMMANDS = {"human-webhook": human_webhook}
