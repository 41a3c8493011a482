"""The command `audit`."""

from typing import Any

import click

from penstock.cli.context import CommandContext, command
from penstock.cli.output import format_time, print_json_lines, print_table
from penstock.model.documents import AuditEntry
from penstock.model.message import NEVER
from penstock.store import Store

group = click.Group()


@command(group, "audit")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=50,
    show_default=True,
    help="Maximum number of entries.",
)
@click.option("--tenant", help="Filter by tenant.")
def audit(session: CommandContext, limit: int, tenant: str | None) -> None:
    """Show the audit log, newest entries first.

    It records changes and denied requests, and is kept for one year.

    \b
    penstock audit
    penstock audit --limit 500 --json
    """

    async def work(store: Store) -> list[AuditEntry]:
        return await store.acts(tenant, NEVER, limit)

    entries = session.run_on_store(work, "empty")
    if session.as_json:
        print_json_lines(map(describe_entry, entries))
        return
    columns = ("time", "tenant", "subject", "verb", "target", "detail", "request")
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
        for each in entries
    ]
    print_table(columns, rows, "no audit entries")


def describe_entry(entry: AuditEntry) -> dict[str, Any]:
    return {
        "id": str(entry.id),
        "at": format_time(entry.at),
        "tenant": entry.tenant,
        "subject": entry.subject,
        "verb": entry.verb,
        "target": entry.target,
        "scope": entry.scope,
        "detail": entry.detail,
        "request_id": entry.request_id,
    }


COMMANDS = {"audit": audit}
