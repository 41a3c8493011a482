"""The `audit` commands: the log of changes, and its hash chain."""

from typing import Any

import click
from msgspec.structs import replace

from penstock.broker.audit import AuditLog, AuditQuery, AuditResult
from penstock.cli.context import CommandContext, command
from penstock.cli.options import limit_option
from penstock.cli.output import format_ago, format_time, print_json, print_table
from penstock.model.documents import AuditEntry
from penstock.model.message import NEVER, Moment
from penstock.rules.audit_chain import AuditReport, Finding, SealHead, parse_seal
from penstock.rules.audit_changes import format_changes, read_changes
from penstock.rules.filter_parser import parse_moment
from penstock.store import Store

# Each looks at 20,000 entries.
MAX_SEARCHES = 50
# `penstock audit verify` found something. Errors of the command itself are 1 and 3.
EXIT_NOT_INTACT = 4


class DefaultGroup(click.Group):
    """Runs `list` if no subcommand is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args.insert(0, "list")
        return super().parse_args(ctx, args)


@click.group("audit", cls=DefaultGroup)
def audit() -> None:
    """Show the audit log, and verify its hash chain.

    The log records changes and denied requests, and is kept for one year. A hash chain covers
    every entry.

    \b
    penstock audit --subject ada@example --since -2h
    penstock audit verify
    """


@command(audit, "list")
@limit_option("entries", 50, 1_000)
@click.option("--tenant", help="Filter by tenant.")
@click.option("--subject", help="Filter by the caller: an API key, a JWT subject or a user.")
@click.option("--verb", help="Filter by operation.")
@click.option("--target", help="Filter by a part of the target.")
@click.option("--request", "request_id", help="Filter by request id.")
@click.option(
    "--refused/--done",
    default=None,
    help="Show only denied requests (--refused) or only changes (--done).",
)
@click.option("--since", help="Only entries from this time on: 2026-11-16, today or -2h.")
@click.option("--until", help="Only entries before this time.")
@click.option("--before", type=int, help="Only entries with lower ids.")
def list_(
    session: CommandContext,
    since: str | None,
    until: str | None,
    before: int | None,
    **filters: Any,
) -> None:
    """Show the audit log, newest entries first.

    \b
    penstock audit
    penstock audit --limit 500 --json
    penstock audit list --refused --since today
    """

    async def work(store: Store) -> tuple[AuditResult, Moment]:
        now = await store.now()
        query = AuditQuery(
            since=0 if since is None else parse_moment(since, now),
            until=NEVER if until is None else parse_moment(until, now),
            before=NEVER if before is None else before,
            **filters,
        )
        return await find_entries(store, query), now

    page, now = session.run_on_store(work)
    print_entries(session, page, now)
    if page.before is not None and len(page.entries) < filters["limit"]:
        click.echo(
            f"penstock: the search stopped at entry {page.before};"
            f" continue with --before {page.before}",
            err=True,
        )


def print_entries(session: CommandContext, page: AuditResult, now: Moment) -> None:
    columns = ("age", "tenant", "subject", "verb", "target", "detail", "request")
    rows = [
        (
            format_ago(each.at, now),
            each.tenant,
            each.subject,
            each.verb,
            each.target,
            format_changes(each.detail) or None,
            each.request_id or None,
        )
        for each in page.entries
    ]
    session.print_table(columns, rows, "no audit entries", map(describe_entry, page.entries))


async def find_entries(store: Store, query: AuditQuery) -> AuditResult:
    """Search on where one search stopped, within bounds."""
    log, found = AuditLog(store), AuditResult([], query.before)
    for _ in range(MAX_SEARCHES):
        if found.before is None or len(found.entries) == query.limit:
            break
        left = query.limit - len(found.entries)
        page = await log.find(replace(query, before=found.before, limit=left))
        found = AuditResult([*found.entries, *page.entries], page.before)
    return found


def describe_entry(entry: AuditEntry) -> dict[str, Any]:
    changes = read_changes(entry.detail)
    return {
        "id": str(entry.id),
        "at": format_time(entry.at),
        "tenant": entry.tenant,
        "subject": entry.subject,
        "verb": entry.verb,
        "target": entry.target,
        "scope": entry.scope,
        "detail": "" if changes else entry.detail,
        "changes": changes,
        "request_id": entry.request_id,
    }


@command(audit, "verify")
@click.option(
    "--from", "known", metavar="SEAL", help="Also compare with a seal that you kept elsewhere."
)
def verify(session: CommandContext, known: str | None) -> None:
    """Compare every audit entry with the hash chain.

    Lists entries that were changed, removed, added without a seal, or sealed twice. The exit
    code is 4 if there are any.

    \b
    penstock audit verify
    """
    seal = None if known is None else parse_seal(known)
    report = session.run_on_store(lambda store: AuditLog(store).verify(seal))
    if session.as_json:
        print_json(describe_report(report))
    else:
        print_report(report)
    if not report.intact:
        raise SystemExit(EXIT_NOT_INTACT)


def print_report(report: AuditReport) -> None:
    if report.intact:
        print(f"{report.sealed:,} audit entries are intact up to seal {report.head.number}")
        return
    rows = [
        (str(each.kind), each.entry_id or None, each.number or None) for each in report.findings
    ]
    print_table(("finding", "entry", "seal"), rows, "")


def describe_report(report: AuditReport) -> dict[str, Any]:
    return {
        "intact": report.intact,
        "sealed": report.sealed,
        "seal": str(report.head),
        "findings": [describe_finding(each) for each in report.findings],
    }


def describe_finding(finding: Finding) -> dict[str, Any]:
    return {
        "finding": finding.kind,
        "entry": str(finding.entry_id) if finding.entry_id else None,
        "seal": finding.number or None,
    }


@command(audit, "seal")
def seal(session: CommandContext) -> None:
    """Print the last seal of the hash chain.

    Keep it outside the store. `penstock audit verify --from SEAL` then proves that nothing up
    to that seal was changed, even by an attacker who recomputed the chain.

    \b
    penstock audit seal
    """

    async def work(store: Store) -> SealHead:
        log = AuditLog(store)
        while await log.seal():
            pass
        return await log.head()

    head = session.run_on_store(work)
    session.print_result({"seal": str(head)}, str(head))


COMMANDS = {"audit": audit}
