"""Shell completion of names that are in the store or in the app."""

import asyncio

import click
from click.shell_completion import CompletionItem

from penstock.cli.context import CommandContext


def complete_queue(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    return [CompletionItem(name) for name in find_queues(context) if name.startswith(incomplete)]


def find_queues(context: click.Context) -> list[str]:
    from penstock import stores
    from penstock.broker.local import Broker

    before, given = context.find_root().params, context.params
    url, scope = (given.get(name) or before.get(name) for name in ("url", "scope"))
    session = CommandContext(url, False, scope or "default")

    async def work() -> list[str]:
        if not await stores.exists(session.url):
            return []
        async with await stores.open(session.readable_url) as store:
            queues = await Broker(store).admin.queues(scope=session.scope)
            return [queue.name for queue in queues if not queue.system]

    try:
        return asyncio.run(work())
    except Exception:  # noqa: BLE001 a completion must not print errors into the prompt
        return []


def complete_task(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from penstock.app.discovery import find_app

    try:
        app = find_app(context.params.get("reference"), None)
    except Exception:  # noqa: BLE001 an app that does not import has no names to offer
        return []
    names = sorted(app.tasks) if app is not None else []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
