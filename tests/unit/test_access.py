"""Rights: grants, denials, scopes and trusts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import Forbidden, InvalidInput
from penstock.model.queue import CALLBACK, EVERY
from penstock.rules.access import (
    EVERYTHING,
    ROLES,
    Access,
    Grant,
    Key,
    PreviousKey,
    Right,
    Trust,
    parse_grant,
)


def access(
    *texts: str, scopes: tuple[str, ...] = (EVERY,), trusts: tuple[Trust, ...] = ()
) -> Access:
    return Access(map(parse_grant, texts), scopes, trusts)


@pytest.mark.parametrize(
    ("grants", "right", "queue", "may"),
    [
        (["publish"], Right.PUBLISH, "mail", True),
        (["publish"], Right.CONSUME, "mail", False),
        (["publish:mail-*"], Right.PUBLISH, "mail-out", True),
        (["publish:mail-*"], Right.PUBLISH, "mail", False),
        (["publish:mail-*"], Right.PUBLISH, "xmail-out", False),
        (["publish:m?il"], Right.PUBLISH, "mail", True),
        (["publish:a.b"], Right.PUBLISH, "aXb", False),
        (["publish:Mail"], Right.PUBLISH, "mail", False),
        (["*"], Right.MANAGE, "mail", True),
        (["*"], Right.SHELL, "mail", False),
        (["shell"], Right.SHELL, "mail", True),
        (["read", "-read:payroll"], Right.READ, "mail", True),
        (["read", "-read:payroll"], Right.READ, "payroll", False),
        (["-read:payroll", "read"], Right.READ, "payroll", False),
        (["*", "-*:payroll"], Right.CONSUME, "payroll", False),
        ([], Right.READ, "mail", False),
        # Everything at once: only who may do it to any queue.
        (["read"], Right.READ, EVERY, True),
        (["read:mail-*"], Right.READ, EVERY, False),
        (["read:?"], Right.READ, EVERY, False),
        (["read", "-read:payroll"], Right.READ, EVERY, False),
    ],
)
def test_a_right_is_granted_or_not(grants: list[str], right: Right, queue: str, may: bool) -> None:
    assert access(*grants).allows(right, "default", queue) is may


def test_who_may_not_is_told_what() -> None:
    with pytest.raises(Forbidden, match="may not consume from queue 'mail' of scope 'orders'"):
        access("publish").check(Right.CONSUME, "orders", "mail")
    access("consume").check(Right.CONSUME, "orders", "mail")


@pytest.mark.parametrize(
    "text", ["", "dance", "publish:", "publish:a b", "--read", "read:a//b", "Read"]
)
def test_what_is_no_grant_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a grant"):
        parse_grant(text)


@given(
    st.sampled_from([*Right, EVERY]),
    st.from_regex(r"[a-z*?.-]{1,20}", fullmatch=True),
    st.booleans(),
)
def test_a_grant_is_written_as_it_is_read(right: str, queue: str, deny: bool) -> None:
    grant = Grant(str(right), EVERY if right is Right.ACCESS else queue, deny)
    assert parse_grant(str(grant)) == grant


@pytest.mark.parametrize("text", ["access:mail-*", "-access:mail"])
def test_access_to_a_queue_means_nothing_and_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="cannot be limited to a queue"):
        parse_grant(text)
    assert parse_grant("access:*") == parse_grant("access")


@pytest.mark.parametrize(
    ("grants", "scopes", "rights"),
    [
        (["access"], (EVERY,), {Right.ACCESS}),
        (["access", "-access"], (EVERY,), set()),
        (["publish:a", "-read"], ("web",), {Right.PUBLISH}),
        (["*:a"], (EVERY,), {*Right} - {Right.ACCESS, Right.SHELL}),
        (["*"], (EVERY,), {*Right} - {Right.SHELL}),
    ],
)
def test_rights_for_something(
    grants: list[str], scopes: tuple[str, ...], rights: set[Right]
) -> None:
    assert access(*grants, scopes=scopes).rights == rights


@pytest.mark.parametrize(
    ("grants", "scopes", "may"),
    [
        (["read"], (EVERY,), True),
        (["read"], ("default",), False),
        (["read", "-read:payroll"], (EVERY,), False),
        (["read:_callback"], (EVERY,), False),
    ],
)
def test_callbacks_are_for_those_who_may_do_it_to_all(
    grants: list[str], scopes: tuple[str, ...], may: bool
) -> None:
    assert access(*grants, scopes=scopes).allows(Right.READ, "default", CALLBACK) is may


def test_at_home_grants_are_enough_and_elsewhere_a_trust_is_needed() -> None:
    trust = Trust("billing", "orders", (parse_grant("publish:inbox"),))
    caller = access("publish", "read", scopes=("orders",), trusts=(trust,))
    assert caller.allows(Right.PUBLISH, "orders", "any")
    assert caller.allows(Right.PUBLISH, "billing", "inbox")
    assert not caller.allows(Right.PUBLISH, "billing", "ledger")
    assert not caller.allows(Right.READ, "billing", "inbox")
    assert not caller.allows(Right.PUBLISH, "other", "inbox")
    stranger = access("publish", scopes=("sales",), trusts=(trust,))
    assert not stranger.allows(Right.PUBLISH, "billing", "inbox")


def test_a_trust_gives_nothing_that_the_caller_does_not_have() -> None:
    trust = Trust("billing", "orders", (parse_grant("*"),))
    caller = access("read", scopes=("orders",), trusts=(trust,))
    assert caller.allows(Right.READ, "billing", "inbox")
    assert not caller.allows(Right.PUBLISH, "billing", "inbox")


def test_nobody_gives_what_is_not_theirs() -> None:
    assert access("access", "publish").may_grant(Right.PUBLISH, "default")
    assert not access("access", "publish:mail").may_grant(Right.PUBLISH, "default")
    assert not access("access", "publish", scopes=("orders",)).may_grant(Right.PUBLISH, "default")


def test_roles_that_are_built_in_can_be_read() -> None:
    for texts in ROLES.values():
        access(*texts)
    assert not access(*ROLES["admin"]).allows(Right.SHELL, "default", "shell")
    assert EVERYTHING.allows(Right.SHELL, "default", "shell")


def test_answers_are_remembered_and_not_without_end() -> None:
    caller = access("read:a*")
    for number in range(20_100):
        assert caller.allows(Right.READ, "default", f"a{number}")
    assert len(caller.cached_decisions) <= 10_000


@pytest.mark.parametrize(
    ("key", "opens"),
    [
        (Key(id="1", name="k", digest="right"), True),
        (Key(id="1", name="k", digest="other"), False),
        (Key(id="1", name="k", digest="right", expires_at=100), False),
        (Key(id="1", name="k", digest="right", expires_at=101), True),
        (Key(id="1", name="k", digest="right", revoked_at=50), False),
        (Key(id="1", name="k", digest="other", former=PreviousKey("right", 101)), True),
        (Key(id="1", name="k", digest="other", former=PreviousKey("right", 100)), False),
        (Key(id="1", name="k", digest="other", former=PreviousKey("other", 101)), False),
        (
            Key(id="1", name="k", digest="other", revoked_at=1, former=PreviousKey("right", 101)),
            False,
        ),
    ],
)
def test_a_key_opens_while_it_holds(key: Key, opens: bool) -> None:
    assert key.accepts_digest("right", 100) is opens
