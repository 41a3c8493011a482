"""Who calls: one noun, and the one function that says it of a request."""

from collections.abc import Iterable

from msgspec import Struct

from penstock.errors import Forbidden, InvalidInput

LOOPBACK = ("127.0.0.1", "::1", "localhost")
NAMES = frozenset({b"127.0.0.1", b"[::1]", b"localhost"})


class Caller(Struct, frozen=True):
    """Lock tokens are the subject's, queues the tenant's; roles say what it may do."""

    subject: str
    tenant: str
    roles: frozenset[str]


# Without credentials there is one caller: whoever can reach the loopback of this machine.
OPERATOR = Caller("local", "default", frozenset({"operator"}))


def refuse_exposed(host: str) -> None:
    if host not in LOOPBACK:
        raise InvalidInput(
            f"--host {host} would let anyone in: there are no API keys yet, so the server listens"
            f" on {', '.join(LOOPBACK)} only; put a proxy that knows its callers in front"
        )


def caller_of(headers: Iterable[tuple[bytes, bytes]]) -> Caller:
    """A web page that the operator looks at is not the operator: its browser says where it is from,
    and a name that was made to lead here is not one of ours."""
    for name, value in headers:
        if name == b"host" and name_of(value) not in NAMES:
            raise Forbidden(
                f"host {value.decode('latin-1')[:100]!r} is not this machine's loopback"
            )
        if name == b"origin" and name_of(value.partition(b"://")[2]) not in NAMES:
            raise Forbidden(f"origin {value.decode('latin-1')[:100]!r} is another site")
    return OPERATOR


def name_of(host: bytes) -> bytes:
    """Without its port."""
    name, colon, port = host.rpartition(b":")
    return name if colon and port.isdigit() else host
