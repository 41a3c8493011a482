"""Messages of the lake, back into a queue."""

import click
import msgspec

from penstock.cli.commands.pipeline import add_pipeline_options, open_spark
from penstock.cli.context import CommandContext, command
from penstock.cli.output import print_json

group = click.Group()


@command(group, "replay")
@click.option("--where", required=True, metavar="SQL", help="Which messages, as Spark says it.")
@click.option(
    "--patch", metavar="SQL", help="Another body: an expression, like replace(text, 'a', 'b')."
)
@click.option("--to", metavar="QUEUE", help="All into this queue, and not each into its own.")
@click.option("--rate", metavar="N", help="At most so many a second: 50, or 50/s.")
@click.option("--name", default="", help="Another name is another replay: it publishes again.")
@click.option("--dry-run", is_flag=True, help="Only say how many match.")
@add_pipeline_options
def replay(
    session: CommandContext,
    where: str,
    patch: str | None,
    to: str | None,
    rate: str | None,
    name: str,
    dry_run: bool,
    lake: str,
    master: str,
) -> None:
    """Publishes messages of the lake again.

    Those that ended, or are dead letters, as new messages whose parent is the original; in order
    per ordering key. The same command again publishes what it did not yet, and nothing twice, also
    after those messages have ended.

    --where sees the columns of a message, its body as text, and of its end: state, reason, error,
    attempts, deliveries, consumer, ended_at.

    \b
    penstock replay --where "queue = 'mail' and state = 'failed'" --dry-run
    penstock replay --where "error like '%timeout%'" --rate 50/s
    penstock replay --where "id = 42" --patch "replace(text, 'EUR', 'USD')" --to repaired
    """
    with open_spark(master, session.url) as spark:
        from penstock.pipeline.replay import ReplayRequest, replay
        from penstock.pipeline.spark.sink_options import parse_rate

        wish = ReplayRequest(where, patch, to, session.scope, name)
        pace = None if rate is None else parse_rate(rate)
        done = replay(spark, session.url, lake, wish, rate=pace, dry_run=dry_run)
    if session.as_json:
        print_json({"lake": lake, "matched": done.matched, **msgspec.to_builtins(done)})
        return
    into = ", ".join(f"{queue} {count}" for queue, count in done.queues.items())
    print(f"{done.matched} messages match" + (f": {into}" if into else ""))
    if not dry_run:
        print(f"{done.published} published, {done.repeated} were replayed before")


COMMANDS = {"replay": replay}
