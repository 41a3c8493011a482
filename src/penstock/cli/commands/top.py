"""The command `top`."""

import click

from penstock.cli.context import CommandContext, command
from penstock.stores.urls import redact_url

group = click.Group()


@command(group, "top")
def top(session: CommandContext) -> None:
    """Watch queues, rates and problems in the terminal.

    It refreshes once per second. Press p to pause and q to quit. The dashboard of `penstock serve`
    shows the same in a browser, and more. Requires penstock[tui].

    \b
    penstock top
    penstock top --url postgresql://localhost/jobs
    """
    from penstock.cli.top_screen import TopScreen

    session.run_on_store(
        lambda store: TopScreen(store, session.scope, redact_url(session.url)).run_async()
    )


COMMANDS = {"top": top}
