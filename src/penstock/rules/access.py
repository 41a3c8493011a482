"""Access control: rights on queues by grants, roles, scopes and trusts.

A grant is written `right` or `right:queue*`. A leading `-` makes it a denial, and denials win.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from hmac import compare_digest
from typing import Literal, TypeAlias

from msgspec import Struct

from penstock.errors import Forbidden, InvalidInput
from penstock.model.message import NEVER, Moment
from penstock.model.queue import CALLBACK, EVERY, HUMAN
from penstock.rules.globs import match_glob

GRANT = re.compile(
    r"(?P<deny>-?)(?P<right>\*|[a-z]+)(?::(?P<queue>[A-Za-z0-9._*?-]{1,128}(?:/[A-Za-z0-9._*?-]{1,128})?))?"
)
MAX_CACHED_DECISIONS = 10_000
KeyState: TypeAlias = Literal["active", "expired", "revoked"]


# How the subject of a caller with an API key begins; the id of the key follows.
KEY_SUBJECT = "key:"


class Right(StrEnum):
    PUBLISH = "publish"
    CONSUME = "consume"
    READ = "read"
    MANAGE = "manage"
    # Keys, roles, trusts and the audit log.
    ACCESS = "access"
    # Publishing a shell job runs a command on a worker, so `*` does not include this right.
    SHELL = "shell"
    # Seeing fields that a queue masks.
    REVEAL = "reveal"
    # Sending signals to messages that wait for them.
    SIGNAL = "signal"
    # Deciding human steps in place of the people they are assigned to.
    DECIDE = "decide"


class Grant(Struct, frozen=True):
    right: str
    queue: str = EVERY
    deny: bool = False

    def __str__(self) -> str:
        queue = "" if self.queue == EVERY else f":{self.queue}"
        return f"{'-' * self.deny}{self.right}{queue}"

    def matches(self, right: Right, queue: str) -> bool:
        if self.right != right and (self.right != EVERY or right is Right.SHELL):
            return False
        if queue == EVERY:
            # A denial for one queue is a denial for all queues at once.
            return self.deny or self.queue == EVERY
        if queue == HUMAN and self.right == Right.READ == right and self.queue == EVERY:
            # Steps of people are not shown to everyone who may look at queues.
            return self.deny
        return match_glob(self.queue, queue)


def parse_grant(text: str) -> Grant:
    found = GRANT.fullmatch(text)
    if found is None or found["right"] not in {*Right, EVERY}:
        raise InvalidInput(
            f"{text[:100]!r} is not a grant; write RIGHT or RIGHT:QUEUE*, with a leading - to"
            f" deny; RIGHT is one of {', '.join(Right)}, *"
        )
    if found["right"] == Right.ACCESS and found["queue"] not in (None, EVERY):
        raise InvalidInput(f"{text[:100]!r}: the right 'access' cannot be limited to a queue")
    return Grant(found["right"], found["queue"] or EVERY, bool(found["deny"]))


ROLES: Mapping[str, tuple[str, ...]] = {
    "producer": ("publish",),
    "worker": ("consume",),
    "viewer": ("read",),
    "operator": ("publish", "consume", "read", "manage", "signal"),
    "admin": ("*",),
    "shell": ("shell",),
}


class Trust(Struct, frozen=True):
    """Lets callers of scope `trusted` use these grants in scope `scope`, within their own."""

    scope: str
    trusted: str
    grants: tuple[Grant, ...]


class Access:
    """The permissions of one caller. Outside its own scopes, a trust is needed as well."""

    def __init__(
        self,
        grants: Iterable[Grant],
        scopes: Sequence[str] = (EVERY,),
        trusts: Iterable[Trust] = (),
    ) -> None:
        self.grants = tuple(grants)
        self.scopes = frozenset(scopes)
        self.trusts = tuple(trusts)
        # Rights that are granted for at least one queue.
        self.rights = frozenset(right for right in Right if is_granted_some(self.grants, right))
        self.cached_decisions: dict[tuple[Right, str, str], bool] = {}

    def allows(self, right: Right, scope: str, queue: str = EVERY) -> bool:
        asked = (right, scope, queue)
        answer = self.cached_decisions.get(asked)
        if answer is None:
            if len(self.cached_decisions) >= MAX_CACHED_DECISIONS:
                self.cached_decisions.clear()
            answer = self.cached_decisions[asked] = self.decide(*asked)
        return answer

    def decide(self, right: Right, scope: str, queue: str) -> bool:
        if queue == CALLBACK:
            # Callbacks carry messages of all queues in all scopes.
            return self.allows(right, EVERY)
        if not is_granted(self.grants, right, queue):
            return False
        if EVERY in self.scopes or scope in self.scopes:
            return True
        return any(
            trust.scope == scope
            and trust.trusted in self.scopes
            and is_granted(trust.grants, right, queue)
            for trust in self.trusts
        )

    def may_grant(self, right: Right, scope: str) -> bool:
        """True if the caller has the right itself, in that scope and for all queues."""
        return is_granted(self.grants, right, EVERY) and not {EVERY, scope}.isdisjoint(self.scopes)

    def check(self, right: Right, scope: str, queue: str = EVERY) -> None:
        """Raises Forbidden unless allowed. EVERY as the scope means all queues of all scopes."""
        if not self.allows(right, scope, queue):
            what = "everything" if queue == EVERY else f"queue {queue!r}"
            where = "" if scope == EVERY else f" of scope {scope!r}"
            raise Forbidden(f"this caller may not {RIGHT_PHRASES[right]} {what}{where}")

    def check_some(self, right: Right) -> None:
        if right not in self.rights:
            raise Forbidden(f"this caller may not {RIGHT_PHRASES[right]} anything")


RIGHT_PHRASES = {
    Right.PUBLISH: "publish to",
    Right.CONSUME: "consume from",
    Right.READ: "read",
    Right.MANAGE: "manage",
    Right.ACCESS: "manage the access to",
    Right.SHELL: "publish shell jobs to",
    Right.REVEAL: "see masked fields of",
    Right.SIGNAL: "send signals to messages of",
    Right.DECIDE: "decide human steps of",
}


def is_granted(grants: Iterable[Grant], right: Right, queue: str) -> bool:
    fitting = [grant.deny for grant in grants if grant.matches(right, queue)]
    return bool(fitting) and not any(fitting)


def is_granted_some(grants: Iterable[Grant], right: Right) -> bool:
    """True if the right is granted for at least one queue. ACCESS always means all queues."""
    if right is Right.ACCESS:
        return is_granted(grants, right, EVERY)
    return any(not grant.deny and grant.matches(right, grant.queue) for grant in grants)


# The access of local callers to a server that requires no credentials.
EVERYTHING = Access([Grant(EVERY), Grant(Right.SHELL)])


class PreviousKey(Struct, frozen=True):
    """The digest of a rotated key, and until when it is still valid."""

    digest: str
    until: Moment


class Key(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An API key. `id` is its public part, and the subject in the audit log."""

    id: str
    name: str
    tenant: str = "default"
    roles: tuple[str, ...] = ()
    grants: tuple[str, ...] = ()
    scopes: tuple[str, ...] = (EVERY,)
    types: tuple[str, ...] = (EVERY,)
    # Requests a second.
    rate: float | None = None
    created_at: Moment = 0
    created_by: str = ""
    expires_at: Moment = NEVER
    revoked_at: Moment | None = None
    digest: str = ""
    former: PreviousKey | None = None

    def state(self, now: Moment) -> KeyState:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at <= now else "active"

    def accepts_digest(self, digest: str, now: Moment) -> bool:
        if self.state(now) != "active":
            return False
        former = self.former
        by_former = former is not None and now < former.until
        was = former.digest if by_former and former is not None else self.digest
        # Both are always compared, so that the time taken reveals nothing.
        return compare_digest(self.digest, digest) | compare_digest(was, digest)
