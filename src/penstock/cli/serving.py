"""The service as a process: serve, and up, which is a server with a worker beside it."""

import socket
import sys
from typing import Any, Literal

import click
from msgspec import Struct

from penstock.cli.session import Session, command
from penstock.cli.sources import Settings, settings
from penstock.errors import InvalidInput

group = click.Group()


class ServePlan(Struct, frozen=True):
    """What one server process is to do; `descriptor` is the socket its parent listens on."""

    settings: Settings
    said: str | None
    log: Literal["text", "json"]
    descriptor: int | None = None

    def words(self) -> list[str]:
        """The command line that asks for it. A URL may hold a password, and goes unsaid if the
        environment says it."""
        given = self.settings
        words = ["serve", "--host", given.host, "--port", str(given.port), "--log", self.log]
        words += ["--grace", str(given.grace), "--max-request", str(given.max_request)]
        words += ["--allow-shell"] if given.allow_shell else ["--no-allow-shell"]
        words += [] if self.said is None else ["--url", self.said]
        words += [] if self.descriptor is None else ["--descriptor", str(self.descriptor)]
        return words


def options(call: Any) -> Any:
    """What both commands take; what is not said comes from the environment, a file, or defaults."""
    for option in (
        click.option(
            "--log",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="The form of the lines on stderr.",
        ),
        click.option("--allow-shell/--no-allow-shell", default=None, help="Take shell jobs."),
        click.option(
            "--max-request", type=click.IntRange(1_024), help="Bytes of a request, at most."
        ),
        click.option(
            "--grace", type=click.FloatRange(min=0), help="Seconds requests have after a stop."
        ),
        click.option("--port", type=click.IntRange(0, 65_535), help="Default: 7070."),
        click.option("--host", help="A loopback address. Default: 127.0.0.1."),
    ):
        call = option(call)
    return call


@command(group, "serve")
@options
@click.option("--workers", type=click.IntRange(1, 256), help="Server processes. Default: 1.")
@click.option("--parent", type=int, hidden=True)
@click.option("--descriptor", type=int, hidden=True)
def serve(
    session: Session,
    log: Literal["text", "json"],
    parent: int | None,
    descriptor: int | None,
    **flags: Any,
) -> None:
    """Serves the store over HTTP, with the agents inside.

    Without credentials it listens on a loopback address alone. A first SIGTERM or Ctrl-C answers
    those who wait and lets requests finish, a second one does not.

    \b
    penstock serve
    penstock serve --port 8080 --workers 2
    penstock serve --url postgresql://me@db/work
    """
    from penstock.cli.log import configure
    from penstock.http.caller import refuse_exposed

    configure(log)
    given = settings({"url": session.said, **flags})
    refuse_exposed(given.host)
    plan = ServePlan(given, session.said, log, descriptor)
    listener = listening(given) if descriptor is None else socket.socket(fileno=descriptor)
    if given.workers > 1 and descriptor is None:
        sys.exit(crew(plan, listener))
    run(plan, listener, parent)


def listening(given: Settings) -> socket.socket:
    from penstock.http.server import bind

    try:
        return bind(given.host, given.port)
    except OSError as error:
        raise InvalidInput(
            f"cannot listen on {given.host}:{given.port}: {error.strerror}"
        ) from None


def run(plan: ServePlan, listener: socket.socket, parent: int | None) -> None:
    from penstock.cli.workers import quickest
    from penstock.http.server import Serving
    from penstock.http.server import serve as serve_on
    from penstock.http.service import Limits

    given = plan.settings
    limits = Limits(body=given.max_request, allow_shell=given.allow_shell)
    quickest(serve_on(Serving(given.url, given.grace, limits, parent), listener))


def crew(plan: ServePlan, listener: socket.socket) -> int:
    """Several processes that accept from one socket."""
    from msgspec.structs import replace

    from penstock.cli.supervise import Crew

    listener.set_inheritable(True)
    one = replace(plan, descriptor=listener.fileno())
    return Crew([one] * plan.settings.workers).run()


@command(group, "up")
@click.argument("app", metavar="[MODULE:APP]", required=False)
@options
@click.option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True,
              help="Jobs at a time.")  # fmt: skip
def up(
    session: Session, app: str | None, log: Literal["text", "json"], count: int, **flags: Any
) -> None:
    """Starts a server and a worker, with the agents in both.

    The worker runs the tasks of the app, or shell jobs if there is none.

    \b
    penstock up
    penstock up shop.tasks:app --port 8080
    """
    from penstock.cli.log import configure
    from penstock.cli.running import Plan
    from penstock.cli.supervise import Crew
    from penstock.http.caller import refuse_exposed

    configure(log)
    given = settings({"url": session.said, "app": app, **flags})
    refuse_exposed(given.host)
    listener = listening(given)
    listener.set_inheritable(True)
    worker = Plan(
        url=given.url,
        said=session.said,
        scope=session.scope,
        reference=given.app,
        queues=(),
        count=count,
        grace=given.grace,
        lease=None,
        shell=None,
        stop_when_empty=False,
        log=log,
    )
    server = ServePlan(given, session.said, log, listener.fileno())
    sys.exit(Crew([server, worker]).run())


COMMANDS = {"serve": serve, "up": up}
