"""The command `explain`: why a message does not run."""

from typing import Any

import click

from penstock.broker.local import Broker
from penstock.cli.context import CommandContext, command
from penstock.cli.lookup import find_message
from penstock.cli.output import print_json
from penstock.model.explain import Cause

group = click.Group()


@command(group, "explain")
@click.argument("reference")
def explain(session: CommandContext, reference: str) -> None:
    """Explain why a message does not run, or has not finished.

    REFERENCE is an id or QUEUE/NAME. The cause to act on comes first.

    \b
    penstock explain 42
    penstock explain shell/j1
    """

    async def work(broker: Broker) -> list[Cause]:
        record = await find_message(broker, reference, session.scope)
        return await broker.admin.explain(record.message.id, scope=session.scope)

    causes = session.run(work)
    if session.as_json:
        print_json({"causes": [describe_cause(each) for each in causes]})
        return
    for cause in causes:
        print(f"{cause.code}: {cause.text}\n  {cause.remedy}")


def describe_cause(cause: Cause) -> dict[str, Any]:
    return {
        "code": cause.code,
        "text": cause.text,
        "remedy": cause.remedy,
        "evidence": cause.evidence,
    }


COMMANDS = {"explain": explain}
