"""The commands `serve` (HTTP service) and `up` (HTTP service and a worker)."""

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
    """Options of one server process. `descriptor` is a socket inherited from the supervisor."""

    settings: Settings
    url_option: str | None
    log: Literal["text", "json"]
    descriptor: int | None = None

    def to_command(self) -> list[str]:
        """Build the command line, without a URL of the environment: it may hold a password."""
        words = ["serve", "--log", self.log]
        for name, value in msgspec.structs.asdict(self.settings).items():
            if name not in NOT_PASSED_ON and value is not None:
                words += to_flag(name, value)
        words += [] if self.url_option is None else ["--url", self.url_option]
        words += [] if self.descriptor is None else ["--descriptor", str(self.descriptor)]
        return words


# Child processes read these from the environment or a file, or do not need them.
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
                 help="Maximum requests per second and caller. Default: 0 (unlimited)."),
    click.option("--introspect-client", metavar="NAME",
                 help="Client id for the introspection endpoint."),
    click.option("--introspect-url", metavar="URL",
                 help="Introspection endpoint (RFC 7662) for opaque tokens."),
    click.option("--introspect-kind", type=click.Choice(["rfc7662", "lookup"]),
                 help="Introspection protocol: rfc7662, or lookup (POST /v1/accounts/lookup)."),
    click.option("--token-scopes", metavar="SCOPE=WORDS",
                 help="Map JWT scopes to rights, such as jobs:run=claim+complete, or 'codeq'."),
    click.option("--require-claims", metavar="CLAIM", multiple=True,
                 help="Additional required claim of JWTs, such as iat. Repeatable."),
    click.option("--require-event-types/--no-require-event-types", default=None,
                 help="Reject JWTs without the claim eventTypes."),
    click.option("--jwt-tenant-claim", metavar="CLAIM", help="Claim that holds the tenant."),
    click.option("--jwt-algorithms", metavar="NAMES",
                 help="Accepted signature algorithms. Default: RS256,ES256,EdDSA."),
    click.option("--jwks-url", metavar="URL", help="URL of the issuer's public keys (JWKS)."),
    click.option("--jwt-audience", metavar="TEXT", help="Required audience (aud) of JWTs."),
    click.option("--jwt-issuer", metavar="TEXT", help="Required issuer (iss) of JWTs."),
    click.option("--auth/--no-auth", default=None, help="Require an API key or a token."),
)  # fmt: skip

CONNECTIONS = (
    click.option("--environment", metavar="NAME",
                 help="Name that the dashboard shows beside its titles, such as production."),
    click.option("--public-url", metavar="URL",
                 help="Public URL of this service, for links and notifications."),
    click.option("--max-request", type=click.IntRange(1_024),
                 help="Maximum request size in bytes."),
    click.option("--trusted-proxies", metavar="CIDR", multiple=True,
                 help="Reverse proxy whose X-Forwarded-For is trusted. Repeatable."),
    click.option("--cors-origin", metavar="ORIGIN", multiple=True,
                 help="Origin of web pages that may call the service from a browser, such as"
                      " https://app.example.org. Repeatable."),
    click.option("--body-timeout", type=SECONDS, metavar="SECONDS",
                 help="Timeout for a client that stalls while sending a body or reading a response."
                      " Default: 30."),
    click.option("--head-timeout", type=SECONDS, metavar="SECONDS",
                 help="Timeout for receiving request headers. Default: 15."),
)  # fmt: skip


FILES_AND_WEBHOOKS = (
    click.option(
        "--callback-ports",
        metavar="PORTS",
        help="Allowed ports of webhooks, or 'any'. Default: 80,443,8080,8443.",
    ),
    click.option(
        "--allow-private-callbacks/--no-allow-private-callbacks",
        default=None,
        help="Allow webhooks to loopback and private addresses.",
    ),
    click.option(
        "--lake", metavar="LOCATION", help="Lake for pipeline runs started on the dashboard."
    ),
    click.option("--max-artifact", type=click.IntRange(1), help="Maximum artifact size in bytes."),
    click.option(
        "--artifacts",
        metavar="LOCATION",
        help="Artifact directory or s3://BUCKET/PREFIX. Default: next to the store.",
    ),
)


def add_server_options(call: Any) -> Any:
    """Add the options shared by `serve` and `up`."""
    for option in (
        click.option(
            "--log",
            type=click.Choice(["text", "json"]),
            default="text",
            show_default=True,
            help="Format of log lines on stderr.",
        ),
        log_level_option,
        *IDENTITY,
        click.option("--allow-shell/--no-allow-shell", default=None, help="Accept shell jobs."),
        *FILES_AND_WEBHOOKS,
        *CONNECTIONS,
        click.option(
            "--grace",
            type=click.FloatRange(min=0),
            help="Seconds to let requests finish on shutdown.",
        ),
        click.option("--port", type=click.IntRange(0, 65_535), help="Port to bind. Default: 7070."),
        click.option(
            "--host", help="Address to bind. Any but loopback requires --auth. Default: 127.0.0.1."
        ),
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
    """Start the HTTP service.

    It also runs the background agents. Without --auth it binds only loopback addresses. The first
    SIGTERM or Ctrl-C lets requests finish, the second stops them.

    \b
    penstock serve
    penstock serve --port 8080 --workers 2
    penstock serve --url postgresql://me@db/work
    penstock serve --auth --host 0.0.0.0
    """
    from penstock.cli.logs import configure, configure_standard_logging
    from penstock.http.auth.principal import refuse_exposed

    given = load_settings({"url": session.url_option, **flags})
    configure(log, given.log_level)
    configure_standard_logging(log, given.log_level)
    refuse_exposed(given.host, asks=read_trusted_issuers(given) is not None)
    plan = ServePlan(given, session.url_option, log, descriptor)
    listener = open_listener(given) if descriptor is None else socket.socket(fileno=descriptor)
    if given.workers > 1 and descriptor is None:
        sys.exit(run_servers(plan, listener))
    run(plan, listener, parent)


def open_listener(given: Settings) -> socket.socket:
    from penstock.http.auth.trusted_proxies import TrustedProxies
    from penstock.http.cors import CorsPolicy
    from penstock.http.server import bind

    # Report invalid settings before clients can connect.
    parse_ports(given.callback_ports)
    TrustedProxies(given.trusted_proxies)
    CorsPolicy(given.cors_origin)
    try:
        return bind(given.host, given.port)
    except OSError as error:
        raise InvalidInput(
            f"cannot listen on {given.host}:{given.port}: {error.strerror}"
        ) from None


def run(plan: ServePlan, listener: socket.socket, parent: int | None) -> None:
    from penstock.cli.commands.workers import run_with_uvloop
    from penstock.http.server import serve as serve_on
    from penstock.http.state import ServerLimits, ServiceOptions
    from penstock.webhooks.egress import EgressPolicy

    given = plan.settings
    reach = EgressPolicy(given.allow_private_callbacks, parse_ports(given.callback_ports))
    limits = ServerLimits(
        body=given.max_request,
        head_timeout=given.head_timeout,
        body_timeout=given.body_timeout,
        allow_shell=given.allow_shell,
        reach=reach,
        public_url=given.public_url or "",
    )
    options = ServiceOptions(
        url=given.url,
        limits=limits,
        artifacts=given.artifacts,
        max_artifact=given.max_artifact,
        lake=given.lake,
        trusted_issuers=read_trusted_issuers(given),
        trusted_proxies=given.trusted_proxies,
        cors_origins=given.cors_origin,
        environment=given.environment or "",
    )
    run_with_uvloop(serve_on(options, listener, grace=given.grace, parent=parent))


def read_trusted_issuers(given: Settings) -> "TrustedIssuers | None":
    """Build the authentication settings, or None without authentication."""
    from penstock.http.auth.identity import TrustedIssuers, parse_token_scopes
    from penstock.http.auth.jwt import check

    if not (given.auth or given.jwks_url or given.jwt_issuer or given.introspect_url):
        return None
    issuers = TrustedIssuers(
        issuer=given.jwt_issuer,
        audience=given.jwt_audience,
        jwks_url=given.jwks_url,
        algorithms=tuple(word.strip() for word in given.jwt_algorithms.split(",")),
        tenant_claim=given.jwt_tenant_claim,
        introspect_url=given.introspect_url,
        introspect_client=given.introspect_client or "",
        introspect_secret=given.introspect_secret or "",
        rate=given.rate,
        require_event_types=given.require_event_types,
        require_claims=given.require_claims,
        token_scopes=parse_token_scopes(given.token_scopes or ""),
        introspect_kind=given.introspect_kind,
    )
    check(issuers)
    return issuers


def parse_ports(text: str) -> frozenset[int] | None:
    """Parse a list of ports. None means any port."""
    if text == "any":
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdecimal() and 0 < int(word) < 65_536 for word in words):
        raise InvalidInput(f"callback-ports {text!r} must be 'any' or ports such as 80,443")
    return frozenset(map(int, words))


def run_servers(plan: ServePlan, listener: socket.socket) -> int:
    """Run several processes that accept connections from one socket."""
    from msgspec.structs import replace

    from penstock.cli.supervisor import Supervisor

    listener.set_inheritable(True)
    one = replace(plan, descriptor=listener.fileno())
    return Supervisor([one] * plan.settings.workers).run()


@command(group, "up")
@click.argument("app", metavar="[MODULE:APP]", required=False)
@add_server_options
@click.option("--count", type=click.IntRange(1, 10_000), default=10, show_default=True,
              help="Jobs to run at a time.")  # fmt: skip
@click.option("--prefetch", type=click.IntRange(0, 10_000), help=PREFETCH)
def up(
    session: CommandContext,
    app: str | None,
    log: Literal["text", "json"],
    count: int,
    prefetch: int | None,
    **flags: Any,
) -> None:
    """Start the HTTP service and a worker.

    The worker runs the tasks of the app, or shell jobs without an app.

    \b
    penstock up
    penstock up shop.tasks:app --port 8080
    """
    from penstock.cli.logs import configure
    from penstock.cli.supervisor import Supervisor
    from penstock.http.auth.principal import refuse_exposed

    given = load_settings({"url": session.url_option, "app": app, **flags})
    configure(log, given.log_level)
    refuse_exposed(given.host, asks=read_trusted_issuers(given) is not None)
    listener = open_listener(given)
    listener.set_inheritable(True)
    if given.artifacts is not None:
        # The worker has no option for it and reads the environment.
        os.environ["PENSTOCK_ARTIFACTS"] = given.artifacts
    worker = plan_worker(session, given, log, count, prefetch)
    server = ServePlan(given, session.url_option, log, listener.fileno())
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
        url_option=session.url_option,
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
