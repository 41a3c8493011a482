"""Shell completion of names that are in the store or in the app."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from penstock.cli.context import CommandContext

if TYPE_CHECKING:
    from penstock.broker.local import Broker


def complete_queue(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(name) for name in find_queues(context) if name.startswith(incomplete)]


def complete_filter(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Completes the last word of a filter."""

    async def work(broker: "Broker", scope: str) -> list[str]:
        found = await broker.filters.complete(incomplete)
        return [incomplete[: found.start] + item for item in found.items]

    return [CompletionItem(text) for text in look_up(context, work)]


def find_queues(context: click.Context) -> list[str]:
    async def work(broker: "Broker", scope: str) -> list[str]:
        queues = await broker.admin.queues(scope=scope)
        return [queue.name for queue in queues if not queue.system]

    return look_up(context, work)


def look_up(
    context: click.Context, work: Callable[["Broker", str], Awaitable[list[str]]]
) -> list[str]:
    """Reads names from the store of the command, if there is one."""
    from penstock import stores
    from penstock.broker.local import Broker

    before, given = context.find_root().params, context.params
    url, scope = (given.get(name) or before.get(name) for name in ("url", "scope"))
    session = CommandContext(url, False, scope or "default")

    async def read() -> list[str]:
        if not await stores.exists(session.url):
            return []
        async with await stores.open(session.readable_url) as store:
            return await work(Broker(store), session.scope)

    try:
        return asyncio.run(read())
    except Exception:  # noqa: BLE001 - a completion must not print errors into the prompt
        return []


def complete_task(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from penstock.app.discovery import find_app

    try:
        app = find_app(context.params.get("reference"), None)
    except Exception:  # noqa: BLE001 - an app that does not import has no names to offer
        return []
    names = sorted(app.tasks) if app is not None else []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
