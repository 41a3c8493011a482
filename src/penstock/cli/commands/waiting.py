"""The commands `signal` and `steps`, about messages that wait."""

import click
import msgspec

from penstock.broker.local import Broker
from penstock.cli.context import CommandContext, command
from penstock.cli.lookup import find_message
from penstock.cli.message_details import describe_step, print_steps
from penstock.cli.output import print_json
from penstock.model.waiting import SignalAnswer, StepLog
from penstock.wire.fields import is_json

group = click.Group()


@command(group, "signal")
@click.argument("reference")
@click.argument("name")
@click.argument("body", default="null")
@click.option("--key", help="Idempotency key. A repeated signal is stored once.")
def signal(session: CommandContext, reference: str, name: str, body: str, key: str | None) -> None:
    """Send a signal to a message that waits for it.

    REFERENCE is an id or QUEUE/NAME. The signal is stored even if the message does not wait for it
    yet. BODY is JSON; any other text is sent as a JSON string.

    \b
    penstock signal 42 parcel-arrived '{"dock": 4}'
    penstock signal refunds/order-7 approved --key mail-311
    """
    sent = body.encode() if body and is_json(body.encode()) else encode_text(body)

    async def work(broker: Broker) -> tuple[int, SignalAnswer]:
        record = await find_message(broker, reference, session.scope)
        id = record.message.id
        return id, await broker.waits.signal(id, name, sent, key=key, scope=session.scope)

    id, answer = session.run(work)
    if session.as_json:
        print_json({"id": str(answer.id), "message": str(id), "duplicate": answer.duplicate})
    elif answer.duplicate:
        click.echo(f"message {id} already has this signal {name}")
    else:
        click.echo(f"signal {name} stored for message {id}")


def encode_text(text: str) -> bytes:
    return msgspec.json.encode(text)


@command(group, "steps")
@click.argument("reference")
def steps(session: CommandContext, reference: str) -> None:
    """List the durable steps of a message.

    REFERENCE is an id or QUEUE/NAME.

    \b
    penstock steps 42
    """

    async def work(broker: Broker) -> StepLog:
        record = await find_message(broker, reference, session.scope)
        return await broker.waits.steps(record.message.id, scope=session.scope)

    found = session.run(work).steps
    if session.as_json:
        print_json([describe_step(step) for step in found])
    else:
        print_steps(found)


COMMANDS = {"signal": signal, "steps": steps}
