"""The service as a process: serve, and up, which is a server with a worker beside it."""

import os
import socket
import sys
from typing import TYPE_CHECKING, Any, Literal

import click
import msgspec
from msgspec import Struct

from penstock.cli.commands.workers import PREFETCH
from penstock.cli.context import CommandContext, command, log_level_option
from penstock.cli.settings import Settings, load_settings
from penstock.errors import InvalidInput

if TYPE_CHECKING:
    from penstock.cli.run_worker import WorkerPlan
    from penstock.http.auth.identity import TrustedIssuers

group = click.Group()
SECONDS = click.FloatRange(min=0, min_open=True)


class ServePlan(Struct, frozen=True):
    """What one server process is to do; `descriptor` is the socket its parent listens on."""

    settings: Settings
    said: str | None
    log: Literal["text", "json"]
    descriptor: int | None = None

    def to_command(self) -> list[str]:
        """The command line that asks for it. A URL may hold a password, and goes unsaid if the
        environment says it."""
        words = ["serve", "--log", self.log]
        for name, value in msgspec.structs.asdict(self.settings).items():
            if name not in NOT_PASSED_ON and value is not None:
                words += to_flag(name, value)
        words += [] if self.said is None else ["--url", self.said]
        words += [] if self.descriptor is None else ["--descriptor", str(self.descriptor)]
        return words


# A child finds these where its parent did, or has no use for them.
NOT_PASSED_ON = {"url", "app", "workers", "introspect_secret"}


def to_flag(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, tuple):
        return [word for each in value for word in (f"--{flag}", each)]
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]


IDENTITY = (
    click.option("--rate", type=click.FloatRange(min=0), metavar="NUMBER",
                 help="Requests a second of one caller. Default: 0, any."),
    click.option("--introspect-client", metavar="NAME", help="Who asks there."),
    click.option("--introspect-url", metavar="URL", help="Where opaque tokens are asked about."),
    click.option("--require-event-types/--no-require-event-types", default=None,
                 help="Refuse tokens without the claim eventTypes."),
    click.option("--jwt-tenant-claim", metavar="CLAIM", help="What says the tenant of a token."),
    click.option("--jwt-algorithms", metavar="NAMES", help="Default: RS256,ES256,EdDSA."),
    click.option("--jwks-url", metavar="URL", help="The public keys of the issuer."),
    click.option("--jwt-audience", metavar="TEXT", help="Whom its tokens must be for."),
    click.option("--jwt-issuer", metavar="TEXT", help="Whose signed tokens are believed."),
    click.option("--auth/--no-auth", default=None, help="Ask callers for an API key or a token."),
)  # fmt: skip

CONNECTIONS = (
    click.option("--max-request", type=click.IntRange(1_024), help="Bytes of a request, at most."),
    click.option("--trusted-proxies", metavar="CIDR", multiple=True,
                 help="A reverse proxy whose X-Forwarded-For names the client; repeatable."),
    click.option("--body-timeout", type=SECONDS, metavar="SECONDS",
                 help="How long a client may stall while it sends a body or reads an answer."
                      " Default: 30."),
    click.option("--head-timeout", type=SECONDS, metavar="SECONDS",
                 help="How long the head of a request may take. Default: 15."),
)  # fmt: skip


def add_server_options(call: Any) -> Any:
    """What both commands take; what is not said comes from the environment, a file, or defaults."""
    for option in (
        click.option(
            "--log",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="The form of the lines on stderr.",
        ),
        log_level_option,
        *IDENTITY,
        click.option("--allow-shell/--no-allow-shell", default=None, help="Take shell jobs."),
        click.option(
            "--callback-ports",
            metavar="PORTS",
            help="Where callbacks and notices may go, or any. Default: 80,443,8080,8443.",
        ),
        click.option(
            "--allow-private-callbacks/--no-allow-private-callbacks",
            default=None,
            help="Send callbacks and notices to this machine and its network, too.",
        ),
        click.option("--max-artifact", type=click.IntRange(1), help="Bytes of a file, at most."),
        click.option(
            "--artifacts",
            metavar="PLACE",
            help="A directory, or s3://BUCKET/PREFIX. Default: beside the store.",
        ),
        *CONNECTIONS,
        click.option(
            "--grace", type=click.FloatRange(min=0), help="Seconds requests have after a stop."
        ),
        click.option("--port", type=click.IntRange(0, 65_535), help="Default: 7070."),
        click.option("--host", help="Any but a loopback address needs --auth. Default: 127.0.0.1."),
    ):
        call = option(call)
    return call


@command(group, "serve")
@add_server_options
@click.option("--workers", type=click.IntRange(1, 256), help="Server processes. Default: 1.")
@click.option("--parent", type=int, hidden=True)
@click.option("--descriptor", type=int, hidden=True)
def serve(
    session: CommandContext,
    log: Literal["text", "json"],
    parent: int | None,
    descriptor: int | None,
    **flags: Any,
) -> None:
    """Serves the store over HTTP, with the agents inside.

    Without --auth it listens on a loopback address alone. A first SIGTERM or Ctrl-C answers
    those who wait and lets requests finish, a second one does not.

    \b
    penstock serve
    penstock serve --port 8080 --workers 2
    penstock serve --url postgresql://me@db/work
    penstock serve --auth --host 0.0.0.0
    """
    from penstock.cli.logs import configure, configure_standard_logging
    from penstock.http.auth.principal import refuse_exposed

    given = load_settings({"url": session.said, **flags})
    configure(log, given.log_level)
    configure_standard_logging(log, given.log_level)
    refuse_exposed(given.host, asks=read_trusted_issuers(given) is not None)
    plan = ServePlan(given, session.said, log, descriptor)
    listener = open_listener(given) if descriptor is None else socket.socket(fileno=descriptor)
    if given.workers > 1 and descriptor is None:
        sys.exit(run_servers(plan, listener))
    run(plan, listener, parent)


def open_listener(given: Settings) -> socket.socket:
    from penstock.http.auth.trusted_proxies import TrustedProxies
    from penstock.http.server import bind

    # What is wrong is said before anybody can connect.
    parse_ports(given.callback_ports)
    TrustedProxies(given.trusted_proxies)
    try:
        return bind(given.host, given.port)
    except OSError as error:
        raise InvalidInput(
            f"cannot listen on {given.host}:{given.port}: {error.strerror}"
        ) from None


def run(plan: ServePlan, listener: socket.socket, parent: int | None) -> None:
    from penstock.cli.commands.workers import run_with_uvloop
    from penstock.http.server import serve as serve_on
    from penstock.http.service import ServiceOptions
    from penstock.http.state import ServerLimits
    from penstock.webhooks.egress import EgressPolicy

    given = plan.settings
    reach = EgressPolicy(given.allow_private_callbacks, parse_ports(given.callback_ports))
    limits = ServerLimits(
        body=given.max_request,
        head_timeout=given.head_timeout,
        body_timeout=given.body_timeout,
        allow_shell=given.allow_shell,
        reach=reach,
    )
    options = ServiceOptions(
        url=given.url,
        limits=limits,
        artifacts=given.artifacts,
        max_artifact=given.max_artifact,
        trusted_issuers=read_trusted_issuers(given),
        trusted_proxies=given.trusted_proxies,
    )
    run_with_uvloop(serve_on(options, listener, grace=given.grace, parent=parent))


def read_trusted_issuers(given: Settings) -> "TrustedIssuers | None":
    """Whom to believe; None if nothing is asked. To name an issuer is to ask."""
    from penstock.http.auth.identity import TrustedIssuers
    from penstock.http.auth.jwt import check

    if not (given.auth or given.jwks_url or given.jwt_issuer or given.introspect_url):
        return None
    believed = TrustedIssuers(
        given.jwt_issuer,
        given.jwt_audience,
        given.jwks_url,
        tuple(word.strip() for word in given.jwt_algorithms.split(",")),
        given.jwt_tenant_claim,
        given.introspect_url,
        given.introspect_client or "",
        given.introspect_secret or "",
        given.rate,
        given.require_event_types,
    )
    check(believed)
    return believed


def parse_ports(text: str) -> frozenset[int] | None:
    """None is any."""
    if text == "any":
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and 0 < int(word) < 65_536 for word in words):
        raise InvalidInput(f"callback-ports {text!r} is not like 80,443, or any")
    return frozenset(map(int, words))


def run_servers(plan: ServePlan, listener: socket.socket) -> int:
    """Several processes that accept from one socket."""
    from msgspec.structs import replace

    from penstock.cli.supervisor import Supervisor

    listener.set_inheritable(True)
    one = replace(plan, descriptor=listener.fileno())
    return Supervisor([one] * plan.settings.workers).run()


@command(group, "up")
@click.argument("app", metavar="[MODULE:APP]", required=False)
@add_server_options
@click.option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True,
              help="Jobs at a time.")  # fmt: skip
@click.option("--prefetch", type=click.IntRange(0, 10_000), help=PREFETCH)
def up(
    session: CommandContext,
    app: str | None,
    log: Literal["text", "json"],
    count: int,
    prefetch: int | None,
    **flags: Any,
) -> None:
    """Starts a server and a worker, with the agents in both.

    The worker runs the tasks of the app, or shell jobs if there is none.

    \b
    penstock up
    penstock up shop.tasks:app --port 8080
    """
    from penstock.cli.logs import configure
    from penstock.cli.supervisor import Supervisor
    from penstock.http.auth.principal import refuse_exposed

    given = load_settings({"url": session.said, "app": app, **flags})
    configure(log, given.log_level)
    refuse_exposed(given.host, asks=read_trusted_issuers(given) is not None)
    listener = open_listener(given)
    listener.set_inheritable(True)
    if given.artifacts is not None:
        # Both processes inherit it.
        os.environ["PENSTOCK_ARTIFACTS"] = given.artifacts
    worker = plan_worker(session, given, log, count, prefetch)
    server = ServePlan(given, session.said, log, listener.fileno())
    sys.exit(Supervisor([server, worker]).run())


def plan_worker(
    session: CommandContext,
    given: Settings,
    log: Literal["text", "json"],
    count: int,
    prefetch: int | None,
) -> "WorkerPlan":
    from penstock.cli.run_worker import WorkerPlan

    return WorkerPlan(
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
        log_level=given.log_level,
        prefetch=prefetch,
    )


COMMANDS = {"serve": serve, "up": up}
