"""The `callback` commands: list callbacks, show and rotate the signing secret."""

from collections.abc import Sequence
from typing import Any

import click

from penstock.broker.local import Broker
from penstock.broker.webhook_secrets import WebhookSecrets
from penstock.cli.context import CommandContext, command
from penstock.cli.lookup import find_message
from penstock.cli.message_details import describe_message
from penstock.cli.output import (
    format_ago,
    format_clock,
    print_details,
    print_json,
    print_json_lines,
    print_table,
)
from penstock.model.message import Moment, Record
from penstock.model.queue import CALLBACK, Queue
from penstock.rules.callbacks import SigningSecrets
from penstock.rules.callbacks import decode as read
from penstock.wire.webhooks import make_secret_view

TENANT = "default"
COLUMNS = ("id", "event", "state", "attempts", "next", "age", "error")


@click.group("callback")
def callback() -> None:
    """List callbacks, and manage the secret that signs them.

    \b
    penstock callback list 42
    penstock callback secret
    """


@command(callback, "list")
@click.argument("reference")
def list_(session: CommandContext, reference: str) -> None:
    """List the callbacks of a message, newest first.

    REFERENCE is an id or QUEUE/NAME. A callback is a message too: `penstock show` lists its
    attempts. One that used up its attempts is a dead letter, and `penstock redrive` sends it again.

    \b
    penstock callback list 42
    penstock callback list mail/welcome --json
    """

    async def work(broker: Broker) -> tuple[list[Record], Queue, Moment]:
        message = (await find_message(broker, reference, session.scope)).message
        records = await broker.admin.callbacks(message.id, scope=session.scope)
        queue = await broker.get_queue(CALLBACK)
        return records, queue, await broker.now()

    records, queue, now = session.run(work)
    if session.as_json:
        print_json_lines(describe_message(record, queue, None) for record in records)
    else:
        print_table(COLUMNS, [make_row(record, now) for record in records], "no callbacks")


def make_row(record: Record, now: Moment) -> Sequence[Any]:
    message = record.message
    return (
        message.id,
        read(message.body).state.value,
        record.state.value,
        record.attempts,
        format_ago(record.due_at, now),
        format_ago(message.created_at, now),
        record.error,
    )


@command(callback, "secret")
def secret(session: CommandContext) -> None:
    """Show the secret that signs callbacks and notifications.

    For one day after a rotation there are two secrets, and requests carry a signature of each.

    \b
    penstock callback secret
    """
    print_secrets(
        session, session.run_on_store(lambda store: WebhookSecrets(store).secrets(TENANT))
    )


@command(callback, "rotate")
def rotate(session: CommandContext) -> None:
    """Replace the signing secret. The previous one stays valid for one day.

    \b
    penstock callback rotate
    """
    print_secrets(session, session.run_on_store(lambda store: WebhookSecrets(store).rotate(TENANT)))


def print_secrets(session: CommandContext, secrets: SigningSecrets) -> None:
    if session.as_json:
        print_json(make_secret_view(secrets))
        return
    until = None if secrets.until is None else f"{format_clock(secrets.until)} UTC"
    print_details(
        [("secret", secrets.current), ("previous", secrets.previous), ("valid until", until)]
    )


COMMANDS = {"callback": callback}
