"""The `penstock` command. Subcommands are imported when they are used."""

import importlib
import sys
from io import TextIOWrapper

import click

from penstock.cli.options import add_common_options

COMMANDS = {
    "enqueue": "jobs",
    "send": "jobs",
    "list": "messages",
    "show": "messages",
    "explain": "explain",
    "activity": "activity",
    "trace": "activity",
    "cancel": "bulk",
    "redrive": "dlq",
    "purge": "bulk",
    "move": "bulk",
    "edit": "bulk",
    "reprioritise": "bulk",
    "bulk": "bulk",
    "dlq": "dlq",
    "status": "status",
    "agents": "status",
    "top": "top",
    "worker": "workers",
    "serve": "serve",
    "up": "serve",
    "queue": "queues",
    "scope": "scopes",
    "config": "config",
    "schedule": "schedules",
    "rule": "rules",
    "subscription": "subscriptions",
    "workflow": "workflows",
    "signal": "waiting",
    "steps": "waiting",
    "inbox": "inbox",
    "decide": "inbox",
    "pattern": "inbox",
    "human-webhook": "human_webhooks",
    "schema": "schemas",
    "apply": "topology",
    "export": "topology",
    "key": "keys",
    "role": "keys",
    "trust": "trusts",
    "metrics": "metrics",
    "consumers": "metrics",
    "anomalies": "metrics",
    "alert": "alerts",
    "audit": "audit",
    "callback": "callbacks",
    "migrate": "stores",
    "backup": "stores",
    "copy": "copy",
    "doctor": "stores",
    "bench": "stores",
    "pipeline": "pipeline",
    "replay": "replay",
    "demo": "demo",
}


# The commands of QueueCTL, and those that its users asked for.
QUEUECTL_COMMANDS = {
    "enqueue": "jobs",
    "worker": "workers",
    "status": "status",
    "list": "queuectl",
    "show": "messages",
    "cancel": "bulk",
    "dlq": "dlq",
    "config": "config",
    "schedule": "schedules",
}


class LazyGroup(click.Group):
    """Imports a subcommand when it is called, which keeps `penstock status` fast."""

    modules = COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.modules:
            return None
        module = importlib.import_module(f"penstock.cli.commands.{self.modules[cmd_name]}")
        found: click.Command = module.COMMANDS[cmd_name]
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.modules:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches

        near = get_close_matches(args[0], self.modules, 1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)


class QueueCtlGroup(LazyGroup):
    modules = QUEUECTL_COMMANDS


@click.group("penstock", cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="penstock", prog_name="penstock")
@add_common_options
def main(**common: object) -> None:
    """A durable work queue on SQLite, PostgreSQL, MariaDB or Redis.

    \b
    penstock enqueue '{"id": "j1", "command": "echo hi"}'
    penstock worker start --stop-when-empty
    penstock status
    penstock show shell/j1

    The store is taken from --url, PENSTOCK_URL, or url in penstock.toml, in this order. The
    default is sqlite:///penstock.db. Every command accepts --url, --json and --scope, after its
    name or before it. Tables have colors on a terminal, unless NO_COLOR is set.

    Exit codes: 0 success, 1 error, 2 invalid usage, 3 store error or no store.

    \b
    Shell completion:
      ~/.bashrc  eval "$(_PENSTOCK_COMPLETE=bash_source penstock)"
      ~/.zshrc   eval "$(_PENSTOCK_COMPLETE=zsh_source penstock)"
      fish       _PENSTOCK_COMPLETE=fish_source penstock | source
    """
    prepare_streams()


@click.group(
    "queuectl", cls=QueueCtlGroup, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="penstock", prog_name="queuectl")
def queuectl() -> None:
    """The commands of QueueCTL, on a Penstock store.

    \b
    queuectl enqueue '{"id": "j1", "command": "echo hi"}'
    queuectl worker start --count 3
    queuectl list --state pending
    queuectl dlq retry j1
    queuectl config set max_retries 3

    Each command is the one of the same name in `penstock`, except that `list` uses QueueCTL's
    columns and states: pending, processing, completed, failed (waits for a retry) and dead.
    """
    prepare_streams()


def prepare_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A terminal without UTF-8 shows \uXXXX instead of failing.
            stream.reconfigure(errors="backslashreplace")
