"""Reads the credential of a request: API key, token, ticket or session, and its CSRF token."""

from collections.abc import Mapping
from hmac import compare_digest
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from penstock.errors import Forbidden, Unauthenticated
from penstock.http.auth.tickets import PREFIX as TICKET_PREFIX
from penstock.http.auth.tickets import SESSION_PREFIX, IdentitySigner

MAX_TOKEN_LENGTH = 8_192
NOT_SHOWN = "missing credentials; send Authorization: Bearer KEY, or X-API-Key: KEY"
STREAM_PATH = "/v1/events"
SESSION_COOKIE = "penstock_session"
CSRF_HEADER = b"x-csrf-token"
INVALID_CREDENTIAL = "invalid API key or token"


def read_credential(scope: Mapping[str, Any]) -> bytes:
    """Returns the API key, token, ticket or session of a request. Generated clients may send the
    same one in both headers."""
    given: list[bytes] = []
    cookie = b""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, token = value.partition(b" ")
            given.append(token.strip(b" ") if scheme.lower() == b"bearer" else b"")
        elif name == b"x-api-key" and value not in given:
            given.append(value)
        elif name == b"cookie":
            cookie = value
    if any(each.startswith(TICKET_PREFIX) for each in given):
        raise Unauthenticated("a ticket is for event streams only; send it as ?ticket=")
    if any(each.startswith(SESSION_PREFIX) for each in given):
        raise Unauthenticated(f"a session is for the cookie {SESSION_COOKIE} only")
    given = given or read_ticket(scope) or read_session(cookie)
    if len(given) != 1 or not given[0]:
        raise Unauthenticated(NOT_SHOWN)
    check_credential(given[0])
    return given[0]


def check_credential(token: bytes) -> None:
    if len(token) > MAX_TOKEN_LENGTH:
        raise Unauthenticated(NOT_SHOWN)
    if not token.isascii() or not token.decode().isprintable() or b" " in token:
        raise Unauthenticated(INVALID_CREDENTIAL)


def read_session(cookie: bytes) -> list[bytes]:
    if not cookie:
        return []
    try:
        found = SimpleCookie(cookie.decode("latin-1")).get(SESSION_COOKIE)
    except CookieError:
        return []
    is_ours = found is not None and is_session(found.value)
    return [found.value.encode("latin-1")] if is_ours and found is not None else []


def is_session(token: str) -> bool:
    return token.startswith(SESSION_PREFIX.decode())


def make_csrf_token(sessions: IdentitySigner, session: bytes) -> str:
    """Pages of other origins cannot read it, so they cannot write with the cookie."""
    return sessions.sign(b"csrf " + session).hex()


def check_csrf_token(expected: str, scope: Mapping[str, Any]) -> None:
    given = next((value for name, value in scope["headers"] if name == CSRF_HEADER), b"")
    if not compare_digest(given, expected.encode()):
        raise Forbidden(
            "the X-CSRF-Token is missing or does not match the session; GET /v1/session returns it"
        )


def read_ticket(scope: Mapping[str, Any]) -> list[bytes]:
    """Browsers' EventSource sends no headers, so event streams take a ticket in the query."""
    if scope["method"] != "GET" or not scope["path"].endswith(STREAM_PATH):
        return []
    query = parse_qs(scope["query_string"].decode("latin-1"))
    found = [each.encode() for each in query.get("ticket", [])]
    return [each for each in found if each.startswith(TICKET_PREFIX)]
