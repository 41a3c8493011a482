"""Checks callback URLs, and builds the messages of the callback queue."""

import re
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from penstock.errors import InvalidInput
from penstock.model.fields import MAX_URL_LENGTH
from penstock.model.message import Meta, Moment, State
from penstock.rules.validation import check_text, clip

# The message type in the callback queue.
TYPE = "callback"
# Printable ASCII; other characters must be percent-encoded or punycode.
URL_CHARACTERS = re.compile(r"[!-~]+")

encode = msgspec.json.Encoder().encode


class Ended(Struct, frozen=True, omit_defaults=True):
    """The id, final state and reason of a message that ended."""

    id: str
    state: State
    reason: str | None = None


decode = msgspec.json.Decoder(Ended).decode


class SigningSecrets(Struct, frozen=True):
    """The signing secrets of a tenant. `previous` stays valid `until` a moment."""

    current: str
    previous: str | None = None
    until: Moment | None = None

    @property
    def valid(self) -> list[str]:
        return [self.current] if self.previous is None else [self.current, self.previous]


def check_url(field: str, url: str) -> None:
    """Checks the syntax. The address is checked when the URL is called."""
    check_text(field, url, MAX_URL_LENGTH)
    if (wrong := explain_refusal(url)) is not None:
        error = InvalidInput(f"{field} {clip(url)} {wrong}")
        error.details = ((field, wrong),)
        raise error


def explain_refusal(url: str) -> str | None:
    if not URL_CHARACTERS.fullmatch(url) or "\\" in url:
        return "contains a character that is not allowed in a URL"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https"):
        return "must use http or https"
    if "@" in parts.netloc:
        return "must not contain credentials"
    if not host or port == 0:
        return "must have a host, and a port other than 0"
    return None


def make_body(id: int, state: State, reason: str | None) -> bytes:
    return encode(Ended(str(id), state, reason))


def make_correlation_id(id: int) -> str:
    """Returns the correlation id that finds the callbacks of a message."""
    return f"callback-{id}"


def make_meta(id: int) -> str:
    return encode(Meta(correlation_id=make_correlation_id(id), parent_id=id)).decode()
