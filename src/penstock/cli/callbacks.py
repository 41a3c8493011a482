"""Callbacks: how word of a message's end was sent, and the secret that it is signed with."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from penstock.broker import Broker
from penstock.callback import Secrets
from penstock.callback import decode as read
from penstock.cli.find import found
from penstock.cli.messages import for_programs
from penstock.cli.output import ago, as_json, as_lines, clock, details, table
from penstock.cli.session import Session, command
from penstock.message import Moment, Record
from penstock.queue import CALLBACK
from penstock.signing import Signing
from penstock.wire.callbacks import secret_of

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
def list_(session: Session, reference: str) -> None:
    """Lists the callbacks of one message by id or queue/name, the newest first.

    Every try is in the timeline of the callback, which is a message: penstock show. One that was
    given up is a dead letter: penstock redrive sends it again.

    \b
    penstock callback list 42
    penstock callback list mail/welcome --json
    """

    async def work(broker: Broker) -> tuple[list[Record], Moment]:
        message = (await found(broker, reference, session.scope)).message
        records = await broker.admin.callbacks(message.id, scope=session.scope)
        return records, await broker.store.now()

    records, now = session.run(work)
    if session.as_json:
        as_lines(for_programs(record, CALLBACK, None) for record in records)
    else:
        table(PEOPLE, [row(record, now) for record in records], "no callbacks")


def row(record: Record, now: Moment) -> Sequence[Any]:
    message = record.message
    return (message.id, read(message.body).state.value, record.state.value, record.attempts,
            ago(record.due_at, now), ago(message.created_at, now), record.error)  # fmt: skip


@command(callback, "secret")
def secret(session: Session) -> None:
    """Shows the secret that callbacks and notices are signed with.

    After a rotation there are two for a day: whatever is sent has a signature by each.

    \b
    penstock callback secret
    """
    told(session, session.run(lambda broker: Signing(broker.store).secrets(broker.tenant)))


@command(callback, "rotate")
def rotate(session: Session) -> None:
    """Replaces the secret. The one before it is valid for another day.

    \b
    penstock callback rotate
    """
    told(session, session.run(lambda broker: Signing(broker.store).rotate(broker.tenant)))


def told(session: Session, secrets: Secrets) -> None:
    if session.as_json:
        as_json(msgspec.to_builtins(secret_of(secrets)))
        return
    until = None if secrets.until is None else f"{clock(secrets.until)} UTC"
    details([("secret", secrets.current), ("previous", secrets.previous), ("valid until", until)])


COMMANDS = {"callback": callback}
