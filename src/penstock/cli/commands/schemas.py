"""The `schema` commands."""

import sys
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from penstock.app.discovery import load_object
from penstock.app.schemas import export_schema
from penstock.broker.local import Broker
from penstock.broker.schemas.registry import SchemaReport, split_reference
from penstock.cli.completion import complete_queue
from penstock.cli.context import CommandContext, command
from penstock.cli.output import escape_control, format_clock, format_time, print_json
from penstock.errors import InvalidInput
from penstock.model.schemas import Binding, Compatibility, Schema


@click.group("schema")
def schema() -> None:
    """Manage the JSON Schemas of message bodies.

    \b
    penstock schema draft orders > order.json
    penstock schema add order order.json
    penstock schema bind orders order --type 'order.*'
    """


def add_schema_options(call: Any) -> Any:
    for option in (
        click.option("--compatibility", type=click.Choice(get_args(Compatibility)),
                     help="Compatibility that new versions must keep.  [default: that of the last"
                          " version, or backward]"),
        click.option("--from", "source", metavar="MODULE:NAME",
                     help="Take the schema from a task, a msgspec struct, a dataclass or a pydantic"
                          " model."),
        click.argument("file", required=False, type=click.Path(dir_okay=False)),
        click.argument("name"),
    ):  # fmt: skip
        call = option(call)
    return call


@command(schema, "add")
@add_schema_options
def add(
    session: CommandContext,
    name: str,
    file: str | None,
    source: str | None,
    compatibility: Compatibility | None,
) -> None:
    """Add a version of a schema, from FILE, from stdin (-) or from code.

    \b
    penstock schema add order order.json
    penstock schema add order --from shop.models:Order --compatibility full
    """
    text = read_schema_source(file, source)
    added = session.run(
        lambda broker: broker.schemas.add(
            name, text, compatibility=compatibility, scope=session.scope
        ),
        create=True,
    )
    session.print_result(
        describe_schema(added),
        f"schema {added.reference} is stored; bind it with: penstock schema bind QUEUE {name}",
    )


@command(schema, "check")
@add_schema_options
def check(
    session: CommandContext,
    name: str,
    file: str | None,
    source: str | None,
    compatibility: Compatibility | None,
) -> None:
    """Compare a schema with the last stored version, without adding it.

    The exit code is 1 if it is not compatible.

    \b
    penstock schema check order order.json
    """
    text = read_schema_source(file, source)
    report = session.run(
        lambda broker: broker.schemas.check(
            name, text, compatibility=compatibility, scope=session.scope
        )
    )
    if session.as_json:
        print_json({**msgspec.to_builtins(report), "compatible": report.compatible})
    else:
        print_report(report)
    if not report.compatible and report.compatibility != "none":
        sys.exit(1)


def print_report(report: SchemaReport) -> None:
    verdict = "compatible" if report.compatible else "not compatible"
    print(f"version {report.version} of {report.name} is {verdict} ({report.compatibility})")
    for each in report.breaks:
        print(escape_control(f"  {each.pointer or '/'}: {each.text}"))
    if report.unproven:
        fields = ", ".join(each or "/" for each in report.unproven)
        print(escape_control(f"  not proven for {fields}"))
        print(f"  {report.failed} of the last {report.tested} bodies do not match it")


def read_schema_source(file: str | None, source: str | None) -> bytes:
    if (file is None) == (source is None):
        raise click.UsageError("Give a FILE (- for stdin), or --from MODULE:NAME.")
    if source is not None:
        return msgspec.json.encode(export_schema(load_object(source)))
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file or "").read_bytes()
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}") from None


@command(schema, "list")
def list_(session: CommandContext) -> None:
    """List schemas and the queues they are bound to.

    \b
    penstock schema list
    """

    async def work(broker: Broker) -> tuple[list[Schema], list[Binding]]:
        schemas = await broker.schemas.list_schemas(scope=session.scope)
        return schemas, await broker.schemas.list_bindings(scope=session.scope)

    schemas, bindings = session.run(work)
    rows = [
        (
            each.name,
            each.version,
            each.compatibility,
            format_clock(each.created_at),
            ", ".join(format_binding(one) for one in bindings if one.schema == each.name),
        )
        for each in schemas
    ]
    columns = ("schema", "version", "compatibility", "added", "bound to")
    values = [{**describe_schema(each), "bindings": [
        describe_binding(one) for one in bindings if one.schema == each.name
    ]} for each in schemas]  # fmt: skip
    session.print_table(columns, rows, "no schemas", values)


def format_binding(each: Binding) -> str:
    types = "" if each.type == "*" else f" {each.type}"
    return f"{each.queue}{types} @{each.version}{' follows' * each.follow}"


@command(schema, "show")
@click.argument("reference", metavar="NAME[@VERSION]")
def show(session: CommandContext, reference: str) -> None:
    """Print a schema as JSON.

    \b
    penstock schema show order
    penstock schema show order@2 > order.json
    """
    name, version = split_reference(reference)
    found = session.run(lambda broker: broker.schemas.get(name, version, scope=session.scope))
    session.print_result(
        describe_schema(found), msgspec.json.format(bytes(found.schema), indent=2).decode()
    )


@command(schema, "bind")
@click.argument("queue", shell_complete=complete_queue)
@click.argument("reference", metavar="NAME[@VERSION]")
@click.option("--type", "type_", default="*", show_default=True, help="Types of messages.")
@click.option("--follow", is_flag=True, help="Use new versions at once if they are compatible.")
def bind(session: CommandContext, queue: str, reference: str, type_: str, follow: bool) -> None:
    """Bind a schema to a queue: messages that do not match are refused.

    Without a version, the latest is bound.

    \b
    penstock schema bind orders order@3 --type 'order.*'
    penstock schema bind orders order --follow
    """
    bound = session.run(
        lambda broker: broker.schemas.bind(
            queue, reference, type=type_, follow=follow, scope=session.scope
        )
    )
    if session.as_json:
        print_json(describe_binding(bound))
    else:
        types = "messages" if bound.type == "*" else f"messages of type {bound.type}"
        print(f"{types} of queue {queue} must match {bound.reference}")


@command(schema, "unbind")
@click.argument("queue", shell_complete=complete_queue)
@click.option("--type", "type_", default="*", show_default=True, help="Types of the binding.")
def unbind(session: CommandContext, queue: str, type_: str) -> None:
    """Unbind a schema from a queue.

    \b
    penstock schema unbind orders --type 'order.*'
    """
    session.run(lambda broker: broker.schemas.unbind(queue, type=type_, scope=session.scope))
    gone = {"queue": queue, "type": type_}
    session.print_result(gone, f"queue {queue} has no schema for type {type_}")


@command(schema, "delete")
@click.argument("name")
def delete(session: CommandContext, name: str) -> None:
    """Delete all versions of a schema that is bound to no queue.

    \b
    penstock schema delete order
    """
    session.run(lambda broker: broker.schemas.delete(name, scope=session.scope))
    session.print_result({"schema": name}, f"schema {name} deleted")


@command(schema, "draft")
@click.argument("queue", shell_complete=complete_queue)
@click.option("--type", "type_", default="*", show_default=True, help="Types of messages.")
def draft(session: CommandContext, queue: str, type_: str) -> None:
    """Infer a schema from the last 1,000 stored bodies of a queue.

    \b
    penstock schema draft orders --type order.placed > order.json
    """
    drafted, bodies = session.run(
        lambda broker: broker.schemas.draft(queue, type=type_, scope=session.scope)
    )
    if not bodies:
        raise InvalidInput(f"queue {queue!r} has no stored JSON body of type {type_}")
    session.print_result(
        {"schema": drafted, "bodies": bodies},
        msgspec.json.format(msgspec.json.encode(drafted), indent=2).decode(),
    )


def describe_schema(each: Schema) -> dict[str, Any]:
    return {
        "name": each.name,
        "version": each.version,
        "compatibility": each.compatibility,
        "created_at": format_time(each.created_at),
        "schema": msgspec.json.decode(bytes(each.schema)),
    }


def describe_binding(each: Binding) -> dict[str, Any]:
    return {
        "queue": each.queue,
        "type": each.type,
        "schema": each.schema,
        "version": each.version,
        "follow": each.follow,
    }


COMMANDS = {"schema": schema}
