"""Callbacks: how word of a message's end was sent, and the secret that it is signed with."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from penstock.broker.local import Broker
from penstock.broker.webhook_secrets import WebhookSecrets
from penstock.cli.commands.messages import describe_message
from penstock.cli.context import CommandContext, command
from penstock.cli.lookup import find_message
from penstock.cli.output import (
    format_ago,
    format_clock,
    print_details,
    print_json,
    print_json_lines,
    print_table,
)
from penstock.model.message import Moment, Record
from penstock.model.queue import CALLBACK
from penstock.rules.callbacks import SigningSecrets
from penstock.rules.callbacks import decode as read
from penstock.wire.webhooks import make_secret_view

PEOPLE = ("id", "tells of", "state", "tries", "next", "age", "error")


@click.group("callback")
def callback() -> None:
    """Callbacks: what is told of messages that ended.

    \b
    penstock callback list 42
    penstock callback secret
    """


@command(callback, "list")
@click.argument("reference")
def list_(session: CommandContext, reference: str) -> None:
    """Lists the callbacks of one message by id or queue/name, the newest first.

    Every try is in the timeline of the callback, which is a message: penstock show. One that was
    given up is a dead letter: penstock redrive sends it again.

    \b
    penstock callback list 42
    penstock callback list mail/welcome --json
    """

    async def work(broker: Broker) -> tuple[list[Record], Moment]:
        message = (await find_message(broker, reference, session.scope)).message
        records = await broker.admin.callbacks(message.id, scope=session.scope)
        return records, await broker.store.now()

    records, now = session.run(work)
    if session.as_json:
        print_json_lines(describe_message(record, CALLBACK, None) for record in records)
    else:
        print_table(PEOPLE, [make_row(record, now) for record in records], "no callbacks")


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
    """Shows the secret that callbacks and notices are signed with.

    After a rotation there are two for a day: whatever is sent has a signature by each.

    \b
    penstock callback secret
    """
    print_secrets(
        session, session.run(lambda broker: WebhookSecrets(broker.store).secrets(broker.tenant))
    )


@command(callback, "rotate")
def rotate(session: CommandContext) -> None:
    """Replaces the secret. The one before it is valid for another day.

    \b
    penstock callback rotate
    """
    print_secrets(
        session, session.run(lambda broker: WebhookSecrets(broker.store).rotate(broker.tenant))
    )


def print_secrets(session: CommandContext, secrets: SigningSecrets) -> None:
    if session.as_json:
        print_json(msgspec.to_builtins(make_secret_view(secrets)))
        return
    until = None if secrets.until is None else f"{format_clock(secrets.until)} UTC"
    print_details(
        [("secret", secrets.current), ("previous", secrets.previous), ("valid until", until)]
    )


COMMANDS = {"callback": callback}
