"""The record of who did what."""

from typing import Any

import click

from penstock.broker.local import Broker
from penstock.cli.context import CommandContext, command
from penstock.cli.output import format_time, print_json_lines, print_table
from penstock.model.documents import AuditEntry
from penstock.model.message import NEVER

group = click.Group()


@command(group, "audit")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="How many."
)
@click.option("--tenant", help="Of this tenant alone.")
def audit(session: CommandContext, limit: int, tenant: str | None) -> None:
    """Shows who did what, and who was refused.

    The newest first; a year is kept.

    \b
    penstock audit
    penstock audit --limit 500 --json
    """

    async def work(broker: Broker) -> list[AuditEntry]:
        return await broker.store.acts(tenant, NEVER, limit)

    acts = session.run(work, "empty")
    if session.as_json:
        print_json_lines(describe_entry(each) for each in acts)
        return
    columns = ("when", "tenant", "who", "did", "to", "detail", "request")
    rows = [
        (
            format_time(each.at),
            each.tenant,
            each.subject,
            each.verb,
            each.target,
            each.detail or None,
            each.request_id or None,
        )
        for each in acts
    ]
    print_table(columns, rows, "nothing was done yet")


def describe_entry(act: AuditEntry) -> dict[str, Any]:
    return {
        "id": str(act.id),
        "at": format_time(act.at),
        "tenant": act.tenant,
        "subject": act.subject,
        "verb": act.verb,
        "target": act.target,
        "scope": act.scope,
        "detail": act.detail,
        "request_id": act.request_id,
    }


COMMANDS = {"audit": audit}
