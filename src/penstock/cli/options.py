"""Options that every command takes, after its name or before it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

C = TypeVar("C", bound=Callable[..., Any])


def complete_filter(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    # Imported late, because it imports the context of commands, which needs these options.
    from penstock.cli import completion

    return completion.complete_filter(context, parameter, incomplete)


def limit_option(things: str, default: int, highest: int | None = None) -> Callable[[C], C]:
    return click.option("--limit", type=click.IntRange(1, highest), default=default,
                        show_default=True, help=f"Maximum number of {things}.")  # fmt: skip


severity_option = click.option("--severity", "severities", multiple=True,
                               type=click.Choice(("info", "warning", "critical")),
                               help="Only this severity. Repeatable.")  # fmt: skip


def add_search_options(call: Any) -> Any:
    for option in (
        click.option(
            "--cursor", metavar="CURSOR", help="With --filter, the cursor of the previous page."
        ),
        click.option(
            "--filter",
            metavar="FILTER",
            help="Filter, such as 'state:dead age>10m error:timeout'.",
            shell_complete=complete_filter,
        ),
    ):
        call = option(call)
    return call


def add_common_options(call: Any) -> Any:
    for option in (
        click.option("--scope", help="Scope to use.  [default: default]"),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option(
            "--url", help="URL of the store. Env: PENSTOCK_URL.  [default: sqlite:///penstock.db]"
        ),
    ):
        call = option(call)
    return call
