"""The `subscription` commands."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from penstock.cli.completion import complete_queue
from penstock.cli.context import CommandContext, command
from penstock.cli.output import format_clock, format_time
from penstock.cli.times import parse_time, to_moment
from penstock.model.broadcast import BroadcastSubscription, make_child_name
from penstock.model.message import Moment
from penstock.rules.durations import parse_seconds
from penstock.rules.plurals import format_count

queue_argument = click.argument("queue", shell_complete=complete_queue)


@click.group("subscription")
def subscription() -> None:
    """Manage the durable subscriptions of broadcast queues.

    \b
    penstock queue create events kind=broadcast
    penstock subscription add events mailer --filter 'type:order.*'
    penstock subscription list events
    """


@command(subscription, "seen")
@queue_argument
@click.argument("name")
@click.argument("key")
def seen(session: CommandContext, queue: str, name: str, key: str) -> None:
    """Check whether a subscription completed a message with KEY in the last day.

    \b
    penstock subscription seen events mailer order-7
    """
    id = session.run(
        lambda broker: broker.seen(make_child_name(queue, name), key, scope=session.scope)
    )
    session.print_result(
        {"duplicate": id is not None, "id": None if id is None else str(id)},
        "not seen" if id is None else f"seen by message {id}",
    )


@command(subscription, "add")
@queue_argument
@click.argument("name")
@click.option(
    "--filter", default="", help="Filter of the messages it receives, as in `penstock list`."
)
@click.option("--ttl", help="Delete the subscription after this time without a claim, such as 7d.")
@click.option("--start", default="now", show_default=True,
              help="Start: now, earliest, or a time such as 2026-01-31T12:00:00Z.")  # fmt: skip
@click.option(
    "--max-depth", type=int, help="Maximum number of waiting messages. More become dead letters."
)
@click.option("--max-attempts", type=int, help="Maximum number of attempts.")
def add(
    session: CommandContext,
    queue: str,
    name: str,
    filter: str,
    ttl: str | None,
    start: str,
    **settings: int | None,
) -> None:
    """Create a subscription, or change its filter, ttl and settings.

    \b
    penstock subscription add events mailer --filter 'type:order.*' --start earliest
    """
    given = {each: value for each, value in settings.items() if value is not None}
    seconds = None if ttl is None else parse_seconds(ttl)
    made = session.run(
        lambda broker: broker.broadcasts.subscribe(
            queue, name, filter=filter, ttl=seconds, start=read_start(start), scope=session.scope,
            **given,
        )
    )  # fmt: skip
    session.print_result(
        describe_subscription(queue, made), f"subscribed; claim from {make_child_name(queue, name)}"
    )


def read_start(text: str) -> str | Moment:
    return text if text in ("now", "earliest") else to_moment(parse_time(text))


@command(subscription, "list")
@queue_argument
def list_(session: CommandContext, queue: str) -> None:
    """List the subscriptions of a broadcast queue.

    \b
    penstock subscription list events
    """
    found = session.run(
        lambda broker: broker.broadcasts.list_subscriptions(queue, scope=session.scope)
    )
    columns = ("subscription", "queue", "filter", "ttl", "created (UTC)", "state")
    rows = [make_row(queue, each) for each in found]
    values = (describe_subscription(queue, each) for each in found)
    session.print_table(columns, rows, "no subscriptions", values)


def make_row(queue: str, each: BroadcastSubscription) -> Sequence[Any]:
    state = "full" if each.full else "catching up" if each.catching_up else "live"
    return (each.name, make_child_name(queue, each.name), each.filter,
            "" if each.ttl is None else f"{each.ttl:g} s", format_clock(each.created_at),
            state)  # fmt: skip


def describe_subscription(queue: str, each: BroadcastSubscription) -> dict[str, Any]:
    return {
        **msgspec.to_builtins(each),
        "queue": make_child_name(queue, each.name),
        "filter": each.filter,
        "created_at": format_time(each.created_at),
        "catching_up": each.catching_up,
        "full": each.full,
    }


@command(subscription, "delete")
@queue_argument
@click.argument("name")
def delete(session: CommandContext, queue: str, name: str) -> None:
    """Delete a subscription and cancel the messages that wait in it.

    \b
    penstock subscription delete events mailer
    """
    count = session.run(
        lambda broker: broker.broadcasts.unsubscribe(queue, name, scope=session.scope)
    )
    session.print_result(
        {"subscription": name, "queue": queue, "cancelled": count},
        f"{name} deleted; {format_count(count, 'message')} cancelled",
    )


COMMANDS = {"subscription": subscription}
