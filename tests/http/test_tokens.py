"""Lock tokens: of use to whom they were given, on every server of a store, while they hold."""

from pathlib import Path
from typing import Any

import pytest

from penstock.errors import Forbidden, InvalidToken
from penstock.http.lock_tokens import HeldLock, Tokens
from tests.http.served import Served, served

TOKENS = Tokens(bytes(32))
MORE: dict[str, dict[str, Any]] = {"fail": {"error": "no"}, "extend": {"lease": 60}}
HELD = HeldLock(7, 3, 12)
GIVEN = TOKENS.sign(HELD, "ada")


def test_a_token_is_read_by_its_subject() -> None:
    assert TOKENS.read(GIVEN, "ada") == HELD
    assert Tokens(bytes(32)).read(GIVEN, "ada") == HELD
    from_dead = HeldLock(7, 3, 12, from_dead=True)
    assert TOKENS.read(TOKENS.sign(from_dead, "ada"), "ada") == from_dead


def test_a_token_of_somebody_else_is_forbidden() -> None:
    with pytest.raises(Forbidden, match="message 7"):
        TOKENS.read(GIVEN, "bob")


@pytest.mark.parametrize(
    "token",
    [
        GIVEN.replace("7.3", "8.3"),
        GIVEN.replace("7.3", "7.4"),
        GIVEN.replace("7.3.12", "7.3.13"),
        GIVEN.replace("7.3.12", "7.3.12d"),
        GIVEN[:-1],
        f"{GIVEN}=",
        f"0{GIVEN}",
        Tokens(b"x" * 32).sign(HELD, "ada"),
        "7.3",
        "7.3.",
        "..",
        "",
        "7.-3.abc",
        "\u0667.3.abc",
        "7.3.é",
        f"{'9' * 30}.3.abc",
    ],
)
def test_a_token_that_was_changed_or_made_up_is_refused(token: str) -> None:
    with pytest.raises(InvalidToken):
        TOKENS.read(token, "ada")


def test_a_cursor_is_for_its_list_alone() -> None:
    cursor = TOKENS.seal_cursor(42, ("default", "mail"))
    assert TOKENS.unseal_cursor(cursor, ("default", "mail")) == 42
    for wrong in (cursor.replace("42", "43"), "42", "42.é", "x.y", ""):
        with pytest.raises(InvalidToken):
            TOKENS.unseal_cursor(wrong, ("default", "mail"))
    with pytest.raises(InvalidToken):
        TOKENS.unseal_cursor(cursor, ("default", "other"))


def test_a_token_of_one_server_settles_on_another(server: Served, store: str, folder: Path) -> None:
    queue = server.queue()
    id = server.publish(queue)
    token = server.claim_one(queue)["token"]
    with served(store, folder) as other:
        assert other.post("/v1/complete", {"token": token}).json == {"id": id, "state": "completed"}


@pytest.mark.parametrize(
    "verb",
    ["complete", "fail", "nack", "reject", "release", "extend", "begin", "progress"],
)
def test_a_forged_token_is_a_400_and_an_old_one_a_409(server: Served, verb: str) -> None:
    queue = server.queue()
    id = server.publish(queue)
    more = MORE.get(verb, {})
    old = server.claim_one(queue)["token"]
    _, fence, rest = old.split(".", 2)
    forged = f"{id}.{int(fence) + 1}.{rest}"
    reply = server.post(f"/v1/{verb}", {"token": forged, **more})
    assert (reply.status, reply.code) == (400, "INVALID_TOKEN")
    server.post("/v1/nack", {"token": old, "delay": 0})
    held = server.claim_one(queue)
    before = server.message(id)
    late = server.post(f"/v1/{verb}", {"token": old, **more})
    expected = "ALREADY_SETTLED" if verb == "nack" else "LOCK_LOST"
    assert (late.status, late.code) == (409, expected)
    assert server.message(id) == before
    assert server.post("/v1/complete", {"token": held["token"]}).status == 200


def test_a_call_that_was_done_before_is_told_its_outcome(server: Served) -> None:
    queue = server.queue()
    server.publish(queue)
    sent = {"token": server.claim_one(queue)["token"], "result": 1}
    assert server.post("/v1/complete", sent).status == 200
    again = server.post("/v1/complete", sent)
    assert (again.status, again.code) == (409, "ALREADY_SETTLED")
    assert again.json["error"]["details"] == [{"field": "state", "message": "completed"}]
    other = server.post("/v1/nack", {"token": sent["token"]})
    assert (other.status, other.code) in ((409, "LOCK_LOST"), (409, "INVALID_STATE"))


def test_no_list_shows_a_token(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    token = server.claim_one(queue)["token"]
    listed = server.get("/v1/messages", queue=queue).body + server.get(f"/v1/messages/{id}").body
    assert token.encode() not in listed
    assert b"token" not in listed
