"""Shared by all commands: common options, access to the store, error output."""

import asyncio
import functools
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar, get_args

import click

from penstock import stores
from penstock.broker.local import Broker
from penstock.cli.options import add_common_options
from penstock.cli.output import print_json, print_json_lines, print_table
from penstock.cli.settings import LogLevel, read_file
from penstock.errors import InvalidState, PenstockError, StoreError, StoreUnusable
from penstock.model.documents import AuditEntry, acting
from penstock.model.message import Moment
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
    "bulk": "penstock bulk list",
    "rule": "penstock rule list",
}
# What a server answers instead of these commands.
ROUTES = {
    "list": "/v1/messages",
    "show": "/v1/messages/{reference}",
    "explain": "/v1/messages/{reference}/explain",
    "status": "/v1/stats",
    "activity": "/v1/activity",
    "trace": "/v1/trace/{correlation_id}",
    "bulk list": "/v1/bulk",
    "bulk show": "/v1/bulk/{id}",
    "metrics": "/v1/metrics/queues/{queue}",
    "consumers": "/v1/metrics/consumers",
    "anomalies": "/v1/anomalies",
    "worker list": "/v1/workers",
    "queue list": "/v1/queues",
}
# Audit entries of these commands name a scope. The others concern the whole tenant.
SCOPED = (
    "alert", "bulk", "cancel", "config", "dlq", "edit", "move", "purge", "queue", "redrive",
    "reprioritise", "rule", "schedule", "subscription",
)  # fmt: skip
# Arguments that an audit entry records. Bodies and settings are never recorded.
NAMES = ("queue", "queues", "name", "new_name", "id", "ids", "reference", "references", "trusted")
INVALID_STATE_ADVICE = (
    (re.compile("message "), "run `penstock show` to see its history"),
    (
        re.compile("queue .* has unfinished messages"),
        "run `penstock queue delete --force` to cancel them first",
    ),
)


class CommandContext:
    def __init__(self, url: str | None, as_json: bool, scope: str) -> None:
        # --url overrides the URL of an app. PENSTOCK_URL and files do not.
        self.url_option = url
        self.url = url or os.environ.get("PENSTOCK_URL") or read_configured_url() or DEFAULT_URL
        self.as_json = as_json
        self.scope = scope

    @property
    def readable_url(self) -> str:
        """The URL, for reading only if this user cannot write the file."""
        file = get_file_path(self.url)
        if file is None or not os.path.exists(file) or os.access(file, os.W_OK):
            return self.url
        if "mode=" in self.url:
            return self.url
        return f"{self.url}{'&' if '?' in self.url else '?'}mode=ro"

    @property
    def user(self) -> str:
        """The user and host recorded in audit entries."""
        import getpass
        import socket

        return f"{getpass.getuser()}@{socket.gethostname()}"

    def print_result(self, value: Any, text: str) -> None:
        """Print the value with --json, otherwise the text."""
        print_json(value) if self.as_json else print(text)

    def print_table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        empty: str,
        values: Iterable[Any],
    ) -> None:
        """Print each value with --json, otherwise the rows."""
        print_json_lines(values) if self.as_json else print_table(columns, rows, empty)

    def run(self, work: Callable[[Broker], Awaitable[T]], *, create: bool = False) -> T:
        """Run `work` on a broker of the store. If it is missing, fail, or `create` it."""
        return self.run_on_store(lambda store: work(Broker(store)), create=create)

    def run_timed(self, work: Callable[[Broker], Awaitable[T]]) -> tuple[T, Moment]:
        """Run `work`, and return the time of the store with its result."""

        async def work_and_read_clock(broker: Broker) -> tuple[T, Moment]:
            return await work(broker), await broker.now()

        return self.run(work_and_read_clock)

    def run_on_store(self, work: Callable[[Store], Awaitable[T]], *, create: bool = False) -> T:
        """Run `work` on the store itself."""

        async def main() -> T:
            if not create and not await stores.exists(self.url):
                raise StoreUnusable(
                    f"no store at {locate_store(self.url)!r};"
                    " set --url or PENSTOCK_URL to use another"
                )
            async with await stores.open(self.readable_url) as store:
                acting.set(make_audit_entry(self.user, self.scope))
                return await work(store)

        return asyncio.run(main())


def make_audit_entry(user: str, scope: str) -> AuditEntry:
    """Describe the running command for the audit log."""
    context = click.get_current_context(silent=True)
    if context is None:
        return AuditEntry(subject=user, tenant="default", verb="penstock", target="")
    given = [context.params[name] for name in NAMES if context.params.get(name)]
    words = [word for each in given for word in (each if isinstance(each, tuple) else (each,))]
    verb = context.command_path.partition(" ")[2] or context.command_path
    scope = scope if verb.split()[0] in SCOPED else ""
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
        def call(url: str | None, as_json: bool, scope: str | None, **given: Any) -> Any:
            # The same options may stand before the command.
            before = click.get_current_context().find_root().params
            as_json = as_json or before.get("as_json", False)
            scope = scope or before.get("scope") or "default"
            try:
                return function(CommandContext(url or before.get("url"), as_json, scope), **given)
            except PenstockError as error:
                fail(error, as_json)

        call = add_common_options(call)
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
        program = click.get_current_context().find_root().command.name
        print("; ".join(filter(None, (f"{program}: {error}", advice))), file=sys.stderr)
    sys.exit(STORE if isinstance(error, StoreError) else FAILED)


def find_advice(error: PenstockError) -> str | None:
    """Choose advice by error code, or by the first words of texts like "no queue named 'x'"."""
    first, second = (*str(error).split(maxsplit=2), "", "")[:2]
    if first == "no" and second in LISTS:
        if "; did you mean " in str(error):
            return None
        return f"run `{LISTS[second]}` to see what exists"
    if " is a server; " in str(error):
        return find_route()
    if isinstance(error, InvalidState):
        found = (advice for text, advice in INVALID_STATE_ADVICE if text.match(str(error)))
        return next(found, None)
    return ADVICE.get(error.code)


def find_route() -> str:
    """Say what to ask the server that was given as the store."""
    words = click.get_current_context().command_path.partition(" ")[2]
    if (route := ROUTES.get(words)) is not None:
        return f"the server answers GET {route}"
    return "the server lists its routes at /docs"
