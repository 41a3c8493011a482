"""Shared by all commands: common options, access to the store, error output."""

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
from penstock.cli.settings import LogLevel, read_file
from penstock.errors import InvalidState, PenstockError, StoreError, StoreUnusable
from penstock.model.documents import AuditEntry, acting
from penstock.store import Store
from penstock.stores.urls import get_file_path, redact_url

T = TypeVar("T")
DEFAULT_URL = "sqlite:///penstock.db"
# Scripts rely on these exit codes. Click exits with 2 for invalid usage.
FAILED, STORE = 1, 3
ADVICE = {
    "NAME_TAKEN": "choose another id, or inspect the existing message with `penstock show`",
    "SLUG_CONFLICT": "choose another name",
    "QUEUE_PAUSED": "run `penstock queue resume` to reactivate it",
    "QUEUE_DRAINING": "run `penstock queue resume` to reactivate it",
    "QUEUE_ARCHIVED": "run `penstock queue resume` to reactivate it",
    "QUEUE_FULL": "wait for workers to catch up, or raise max_depth with `penstock queue set`",
}
LISTS = {
    "message": "penstock list",
    "queue": "penstock queue list",
    "schedule": "penstock schedule list",
    "worker": "penstock worker list",
}
# Audit entries of these commands name a scope. The others concern the whole tenant.
SCOPED = ("cancel", "config", "dlq", "queue", "redrive", "schedule")
# Arguments that an audit entry records. Bodies and settings are never recorded.
NAMES = ("queue", "name", "new_name", "id", "ids", "reference", "references", "trusted")
INVALID_STATE_ADVICE = {
    "message": "run `penstock show` to see its history",
    "queue": "run `penstock queue delete --force` to cancel them first",
}


class CommandContext:
    def __init__(self, url: str | None, as_json: bool, scope: str) -> None:
        # --url overrides the URL of an app. PENSTOCK_URL and files do not.
        self.url_option = url
        self.url = url or os.environ.get("PENSTOCK_URL") or read_configured_url() or DEFAULT_URL
        self.as_json = as_json
        self.scope = scope

    @property
    def user(self) -> str:
        """The user and host recorded in audit entries."""
        import getpass
        import socket

        return f"{getpass.getuser()}@{socket.gethostname()}"

    def run(
        self,
        work: Callable[[Broker], Awaitable[T]],
        missing: Literal["refuse", "empty", "create"] = "refuse",
    ) -> T:
        """Run `work` on a broker of the store.

        `missing` says what to do if there is no store: fail, use an empty one, or create it.
        """
        return self.run_on_store(lambda store: work(Broker(store)), missing)

    def run_on_store(
        self,
        work: Callable[[Store], Awaitable[T]],
        missing: Literal["refuse", "empty", "create"] = "refuse",
    ) -> T:
        """Run `work` on the store itself."""

        async def main() -> T:
            url = self.url
            if missing != "create" and not await stores.exists(url):
                text = (
                    f"no store at {locate_store(url)!r}; set --url or PENSTOCK_URL to use another"
                )
                if missing == "refuse":
                    raise StoreUnusable(text)
                print(f"penstock: {text}", file=sys.stderr)
                url = "sqlite://"
            async with await stores.open(url) as store:
                acting.set(make_audit_entry(self.user))
                return await work(store)

        return asyncio.run(main())


def make_audit_entry(user: str) -> AuditEntry:
    """Describe the running command for the audit log."""
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
    url = read_file()[1].get("url")
    return None if url is None else str(url)


def locate_store(url: str) -> str:
    file = get_file_path(url)
    return redact_url(url) if file is None else os.path.abspath(file)


def command(group: click.Group, name: str, **settings: Any) -> Callable[[Any], Any]:
    """Add a command to the group. It receives a CommandContext and reports errors in one line."""

    def decorate(function: Callable[..., Any]) -> Any:
        @functools.wraps(function)
        def call(url: str | None, as_json: bool, scope: str, **given: Any) -> Any:
            try:
                return function(CommandContext(url, as_json, scope), **given)
            except PenstockError as error:
                fail(error, as_json)

        for option in (
            click.option("--scope", default="default", show_default=True, help="Scope to use."),
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
            click.option(
                "--url",
                help="URL of the store. Env: PENSTOCK_URL.  [default: sqlite:///penstock.db]",
            ),
        ):
            call = option(call)
        made = group.command(name, **settings)(call)
        # The help lists a command's own options first.
        made.params.sort(key=lambda each: each.name in ("url", "as_json", "scope"))
        return made

    return decorate


log_level_option = click.option(
    "--log-level",
    type=click.Choice(get_args(LogLevel)),
    help="Minimum level of log lines. Env: PENSTOCK_LOG_LEVEL.  [default: info]",
)


def fail(error: PenstockError, json: bool) -> None:
    """Print the error with advice, and exit."""
    advice = find_advice(error)
    if json:
        print_json({"code": error.code, "error": str(error), "advice": advice}, file=sys.stderr)
    else:
        print("; ".join(filter(None, (f"penstock: {error}", advice))), file=sys.stderr)
    sys.exit(STORE if isinstance(error, StoreError) else FAILED)


def find_advice(error: PenstockError) -> str | None:
    """Choose advice by error code, or by the first words of texts like "no queue named 'x'"."""
    first, second = (*str(error).split(maxsplit=2), "", "")[:2]
    if first == "no" and second in LISTS:
        return f"run `{LISTS[second]}` to see what exists"
    if isinstance(error, InvalidState):
        return INVALID_STATE_ADVICE.get(first)
    return ADVICE.get(error.code)
