"""The command `replay`: publish messages from the lake again."""

from typing import TYPE_CHECKING

import click
import msgspec

from penstock.cli.commands.pipeline import add_pipeline_options, open_spark
from penstock.cli.context import CommandContext, command
from penstock.cli.output import print_json
from penstock.rules.plurals import format_count

if TYPE_CHECKING:
    from penstock.pipeline.replay import ReplayResult

group = click.Group()


@command(group, "replay")
@click.option("--filter", metavar="FILTER",
              help="Filter, such as 'state:failed queue:mail error:timeout'.")  # fmt: skip
@click.option("--where", metavar="SQL", help="Filter, as a Spark SQL expression.")
@click.option(
    "--patch", metavar="SQL", help="Expression for a new body, such as replace(text, 'a', 'b')."
)
@click.option("--to", metavar="QUEUE", help="Target queue. Default: each message's own queue.")
@click.option("--rate", metavar="N", help="Maximum messages per second, such as 50 or 50/s.")
@click.option("--name", default="", help="Name of the replay. A new name publishes again.")
@click.option("--dry-run", is_flag=True, help="Only print the number of matching messages.")
@add_pipeline_options
def replay(
    session: CommandContext,
    filter: str | None,
    where: str | None,
    patch: str | None,
    to: str | None,
    rate: str | None,
    name: str,
    dry_run: bool,
    lake: str,
    master: str,
) -> None:
    """Publish ended messages and dead letters from the lake again.

    They become new messages whose parent is the original, in order per ordering key. A repeated
    command publishes only what the first one did not, and nothing twice.

    --filter takes the filters of `penstock list`, without the fields due, wait and rule. --where
    can use the columns of a message, its body as text, and how it ended: state, reason, error,
    attempts, deliveries, consumer, ended_at.

    \b
    penstock replay --filter 'queue:mail state:failed error:timeout' --dry-run
    penstock replay --where "queue = 'mail' and state = 'failed'" --dry-run
    penstock replay --where "error like '%timeout%'" --rate 50/s
    penstock replay --where "id = 42" --patch "replace(text, 'EUR', 'USD')" --to repaired
    """
    if filter is None and where is None:
        raise click.UsageError("Give --filter or --where.")
    with open_spark(master, session.url) as spark:
        from penstock.pipeline.replay import ReplayRequest, replay
        from penstock.pipeline.spark.sink_options import parse_rate

        request = ReplayRequest(where or "true", patch, to, session.scope, name, filter)
        per_second = None if rate is None else parse_rate(rate)
        done = replay(spark, session.url, lake, request, rate=per_second, dry_run=dry_run)
    report(session, lake, done, dry_run=dry_run)


def report(session: CommandContext, lake: str, done: "ReplayResult", *, dry_run: bool) -> None:
    if session.as_json:
        print_json({"lake": lake, "matched": done.matched, **msgspec.to_builtins(done)})
        return
    into = ", ".join(f"{queue} {count}" for queue, count in done.queues.items())
    print(f"{format_count(done.matched, 'message')} matched" + (f": {into}" if into else ""))
    if not dry_run:
        print(f"{done.published} published, {done.repeated} already replayed")


COMMANDS = {"replay": replay}
