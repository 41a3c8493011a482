"""The record of who did what."""

from typing import Any

import click

from penstock.broker import Broker
from penstock.cli.output import as_lines, table, when
from penstock.cli.session import Session, command
from penstock.document import Act
from penstock.message import NEVER

group = click.Group()


@command(group, "audit")
@click.option(
    "--limit", type=click.IntRange(1, 1_000), default=50, show_default=True, help="How many."
)
@click.option("--tenant", help="Of this tenant alone.")
def audit(session: Session, limit: int, tenant: str | None) -> None:
    """Shows who did what, and who was refused.

    The newest first; a year is kept.

    \b
    penstock audit
    penstock audit --limit 500 --json
    """

    async def work(broker: Broker) -> list[Act]:
        return await broker.store.acts(tenant, NEVER, limit)

    acts = session.run(work, "empty")
    if session.as_json:
        as_lines(told(each) for each in acts)
        return
    columns = ("when", "tenant", "who", "did", "to", "detail", "request")
    rows = [
        (when(each.at), each.tenant, each.subject, each.verb, each.target, each.detail or None,
         each.request_id or None)
        for each in acts
    ]  # fmt: skip
    table(columns, rows, "nothing was done yet")


def told(act: Act) -> dict[str, Any]:
    return {
        "id": str(act.id),
        "at": when(act.at),
        "tenant": act.tenant,
        "subject": act.subject,
        "verb": act.verb,
        "target": act.target,
        "scope": act.scope,
        "detail": act.detail,
        "request_id": act.request_id,
    }


COMMANDS = {"audit": audit}
