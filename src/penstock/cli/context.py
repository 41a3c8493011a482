"""What every command shares: where the store is, how to print, how an error ends it."""

import asyncio
import functools
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar, get_args

import click

from penstock import stores
from penstock.broker.local import Broker
from penstock.cli.output import print_json
from penstock.cli.settings import LogLevel, from_file
from penstock.errors import InvalidState, PenstockError, StoreError, StoreUnusable
from penstock.model.documents import AuditEntry, acting
from penstock.stores.urls import get_file_path, redact_url

T = TypeVar("T")
DEFAULT_URL = "sqlite:///penstock.db"
# Stable: scripts rely on them. 2 is a wrong command line, by click.
FAILED, STORE = 1, 3
ADVICE = {
    "NAME_TAKEN": "choose another id, or look at that one with penstock show",
    "SLUG_CONFLICT": "choose another name",
    "QUEUE_PAUSED": "penstock queue resume opens it",
    "QUEUE_DRAINING": "penstock queue resume opens it",
    "QUEUE_ARCHIVED": "penstock queue resume opens it",
    "QUEUE_FULL": "wait for its workers, or raise max_depth with penstock queue set",
}
LISTS = {
    "message": "penstock list",
    "queue": "penstock queue list",
    "schedule": "penstock schedule list",
    "worker": "penstock worker list",
}


# Commands whose acts belong to a scope. Those of the others are the tenant's.
SCOPED = ("cancel", "config", "dlq", "queue", "redrive", "schedule")
# Arguments that are names of things.
NAMES = ("queue", "name", "new_name", "id", "ids", "reference", "references", "trusted")


STORIES = {
    "message": "penstock show has its story",
    "queue": "penstock queue delete --force cancels them first",
}


class CommandContext:
    def __init__(self, url: str | None, as_json: bool, scope: str) -> None:
        # What was said on the command line beats what an app says; the environment does not.
        self.said = url
        self.url = url or os.environ.get("PENSTOCK_URL") or read_configured_url() or DEFAULT_URL
        self.as_json = as_json
        self.scope = scope

    @property
    def user(self) -> str:
        """Who is at the keyboard, as far as this machine knows."""
        import getpass
        import socket

        return f"{getpass.getuser()}@{socket.gethostname()}"

    def run(
        self,
        work: Callable[[Broker], Awaitable[T]],
        missing: Literal["refuse", "empty", "create"] = "refuse",
    ) -> T:
        """Does the work on a store opened for it. Only a command that writes makes a new one."""

        async def main() -> T:
            url = self.url
            if missing != "create" and not await stores.exists(url):
                text = f"no store at {find_store(url)!r}; --url or PENSTOCK_URL names another"
                if missing == "refuse":
                    raise StoreUnusable(text)
                print(f"penstock: {text}", file=sys.stderr)
                url = "sqlite://"
            async with await stores.open(url) as store:
                acting.set(run_command(self.user))
                return await work(Broker(store))

        return asyncio.run(main())


def run_command(user: str) -> AuditEntry:
    """What this command does, for the record: the things it names, never what it puts in them."""
    context = click.get_current_context(silent=True)
    if context is None:
        return AuditEntry(subject=user, tenant="default", verb="penstock", target="")
    given = [context.params[name] for name in NAMES if context.params.get(name)]
    words = [word for each in given for word in (each if isinstance(each, tuple) else (each,))]
    verb = context.command_path.partition(" ")[2] or context.command_path
    scope = context.params["scope"] if verb.split()[0] in SCOPED else ""
    target = " ".join(map(str, words))[:300]
    return AuditEntry(subject=user, tenant="default", verb=verb, target=target, scope=scope)


def read_configured_url() -> str | None:
    url = from_file()[1].get("url")
    return None if url is None else str(url)


def find_store(url: str) -> str:
    file = get_file_path(url)
    return redact_url(url) if file is None else os.path.abspath(file)


def command(group: click.Group, name: str, **settings: Any) -> Callable[[Any], Any]:
    """A command of the group that gets a Session first, and ends with a clear error."""

    def decorate(function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def call(url: str | None, as_json: bool, scope: str, **given: Any) -> Any:
            try:
                return function(CommandContext(url, as_json, scope), **given)
            except PenstockError as error:
                fail(error, as_json)

        for option in (
            click.option("--scope", default="default", show_default=True, help="Of the queues."),
            click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs."),
            click.option("--url", help="The store; or PENSTOCK_URL, or sqlite:///penstock.db."),
        ):
            call = option(call)
        made = group.command(name, **settings)(call)
        # Its own options first, in the help too.
        made.params.sort(key=lambda each: each.name in ("url", "as_json", "scope"))
        return made

    return decorate


log_level_option = click.option(
    "--log-level",
    type=click.Choice(get_args(LogLevel)),
    help="Log what is at least this urgent; or PENSTOCK_LOG_LEVEL. Default: info.",
)


def fail(error: PenstockError, json: bool) -> None:
    """One line that says what happened, to which thing, and what to do."""
    advice = find_advice(error)
    if json:
        told = {"code": error.code, "error": str(error), "advice": advice}
        print_json(told, file=sys.stderr)
    else:
        print("; ".join(filter(None, (f"penstock: {error}", advice))), file=sys.stderr)
    sys.exit(STORE if isinstance(error, StoreError) else FAILED)


def find_advice(error: PenstockError) -> str | None:
    """By its code; for what was not found, by the thing: `no queue named 'emials'`."""
    first, second = (*str(error).split(maxsplit=2), "", "")[:2]
    if first == "no" and second in LISTS:
        return f"{LISTS[second]} shows what there is"
    if isinstance(error, InvalidState):
        return STORIES.get(first)
    return ADVICE.get(error.code)
