"""The `alert` commands: webhooks about anomalies."""

from typing import Any

import click

from penstock.broker.local import Broker
from penstock.cli.context import CommandContext, command
from penstock.cli.options import severity_option
from penstock.cli.output import format_ago, format_clock, format_time, print_details, print_json
from penstock.model.alerts import AlertStatus
from penstock.rules.durations import parse_seconds


@click.group("alert")
def alert() -> None:
    """Send anomalies to webhooks.

    A running server sends them, signed like callbacks. The body has a `text` field for chat
    services.

    \b
    penstock alert add pager --to https://example.org/hook --severity critical
    penstock alert test pager
    """


@command(alert, "add")
@click.argument("name")
@click.option("--to", "to", required=True, metavar="URL", help="URL to send notifications to.")
@click.option("--kind", "kinds", multiple=True, help="Only this kind. Repeatable.")
@severity_option
@click.option("--queue", "queues", multiple=True, help="Only this queue, or a glob.")
@click.option(
    "--for", "min_duration", default="0s", show_default=True, help="Minimum duration of an anomaly."
)
@click.option(
    "--cooldown", default="5m", show_default=True, help="Minimum time between notifications."
)
def add(
    session: CommandContext, name: str, to: str, min_duration: str, cooldown: str, **filters: Any
) -> None:
    """Create an alert.

    Anomalies that open during the cool-down are sent together after it. A notification follows when
    they are resolved.

    \b
    penstock alert add pager --to https://example.org/hook --severity critical
    penstock alert add mail --to https://example.org/hook --queue 'mail*' --for 5m
    """

    async def work(broker: Broker) -> AlertStatus:
        await broker.alerts.add(
            name,
            to,
            min_duration=parse_seconds(min_duration),
            cooldown=parse_seconds(cooldown),
            scope=session.scope,
            **filters,
        )
        return await broker.alerts.get(name, scope=session.scope)

    made = session.run(work)
    session.print_result(
        describe_alert(made), f"alert {name} created; try it with `penstock alert test {name}`"
    )


@command(alert, "list")
def list_(session: CommandContext) -> None:
    """List alerts.

    \b
    penstock alert list
    """
    found, now = session.run_timed(lambda broker: broker.alerts.list(scope=session.scope))
    rows = [
        (
            each.alert.name,
            each.alert.url,
            ", ".join(each.alert.severities) or "all",
            ", ".join(each.alert.queues) or "all",
            len(each.state.reported),
            each.state.sent,
            format_ago(each.state.last_sent_at, now),
            each.state.last_error,
        )
        for each in found
    ]
    columns = ("alert", "url", "severities", "queues", "open", "sent", "last", "error")
    session.print_table(columns, rows, "no alerts", map(describe_alert, found))


@command(alert, "show")
@click.argument("name")
def show(session: CommandContext, name: str) -> None:
    """Show an alert and how its notifications were delivered.

    \b
    penstock alert show pager
    """
    found = session.run(lambda broker: broker.alerts.get(name, scope=session.scope))
    if session.as_json:
        print_json(describe_alert(found))
        return
    given, state = found.alert, found.state
    pending = state.pending
    print_details(
        (
            ("alert", given.name),
            ("url", given.url),
            ("kinds", ", ".join(given.kinds) or "all"),
            ("severities", ", ".join(given.severities) or "all"),
            ("queues", ", ".join(given.queues) or "all"),
            ("for", f"{given.min_duration:g} s"),
            ("cooldown", f"{given.cooldown:g} s"),
            ("open", len(state.reported)),
            ("sent", state.sent),
            ("last sent", format_clock(state.last_sent_at)),
            ("attempts", None if pending is None else pending.attempts),
            ("next attempt", None if pending is None else format_clock(pending.due_at)),
            ("error", state.last_error),
        )
    )


@command(alert, "delete")
@click.argument("name")
def delete(session: CommandContext, name: str) -> None:
    """Delete an alert.

    \b
    penstock alert delete pager
    """
    session.run(lambda broker: broker.alerts.delete(name, scope=session.scope))
    session.print_result({"deleted": name}, f"alert {name} deleted")


@command(alert, "test")
@click.argument("name")
def test(session: CommandContext, name: str) -> None:
    """Send a test notification.

    A running server sends it within seconds; `penstock alert show` shows the outcome.

    \b
    penstock alert test pager
    """
    session.run(lambda broker: broker.alerts.test(name, scope=session.scope))
    session.print_result(
        {"requested": name},
        f"a server will send a test notification; see `penstock alert show {name}`",
    )


def describe_alert(status: AlertStatus) -> dict[str, Any]:
    given, state = status.alert, status.state
    return {
        "name": given.name,
        "url": given.url,
        "kinds": given.kinds,
        "severities": given.severities,
        "queues": given.queues,
        "min_duration": given.min_duration,
        "cooldown": given.cooldown,
        "created_at": format_time(given.created_at),
        "open": list(state.reported),
        "sent": state.sent,
        "attempts": 0 if state.pending is None else state.pending.attempts,
        "last_sent_at": format_time(state.last_sent_at),
        "due_at": None if state.pending is None else format_time(state.pending.due_at),
        "error": state.last_error,
    }


COMMANDS = {"alert": alert}
