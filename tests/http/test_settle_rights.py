"""A lock token is of use while its caller may consume from the queue, and no longer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.terminal import until
from tests.http.issuer import AUDIENCE, Issuer, issuing
from tests.http.keys import keyed, serve_with_auth, showing
from tests.http.served import Reply, Served

LETTERS = "_dead_letter"
# What each verb is sent with, and the state it leaves.
VERBS: dict[str, tuple[dict[str, Any], str]] = {
    "extend": ({"lease": 60}, "claimed"),
    "begin": ({}, "claimed"),
    "progress": ({"percent": 5}, "claimed"),
    "complete": ({"result": 1}, "completed"),
    "fail": ({"error": "no"}, "failed"),
    "nack": ({"delay": 60}, "scheduled"),
    "reject": ({"error": "no"}, "dead"),
    "release": ({}, "ready"),
    "park": ({}, "scheduled"),
    "cancel": ({}, "cancelled"),
}


@pytest.fixture(scope="module")
def server(store: str, folder: Path) -> Iterator[Served]:
    with serve_with_auth(store, folder) as running:
        yield running


def set_role(server: Served, name: str, *grants: str) -> None:
    assert server.ask("PUT", f"/v1/roles/{name}", {"grants": list(grants)}).status == 200


def hold(server: Served, worker: Served, queue: str) -> list[Any]:
    """One message in hand for each verb."""
    for _ in VERBS:
        server.publish(queue)
    held = worker.claim(queue, limit=len(VERBS), lease=3600)
    assert len(held) == len(VERBS)
    return held


def settle(worker: Served, verb: str, token: str, *, batch: bool) -> Reply:
    sent = {"token": token, **VERBS[verb][0]}
    if batch:
        return worker.post(f"/v1/{verb}/batch", {"items": [sent]})
    return worker.post(f"/v1/{verb}", sent)


def refusal(reply: Reply, *, batch: bool) -> str | None:
    """The code of the error, of one or of the only one of many."""
    if not batch:
        return None if reply.status == 200 else reply.code
    assert reply.status == 200, reply
    (item,) = reply.json["items"]
    code: str | None = item.get("error", {}).get("code")
    return code


@pytest.mark.parametrize("batch", [False, True], ids=["one", "many"])
def test_no_verb_settles_in_a_queue_that_is_denied_meanwhile(server: Served, batch: bool) -> None:
    denied, allowed = server.queue(), server.queue()
    role = f"hands-{batch}"
    set_role(server, role, "consume")
    worker = keyed(server, role)
    lost, kept = hold(server, worker, denied), hold(server, worker, allowed)
    set_role(server, role, "consume", f"-consume:{denied}")
    extend = {"token": lost[0]["token"], "lease": 60}
    until(lambda: worker.post("/v1/extend", extend).status == 403)
    for verb, message in zip(VERBS, lost, strict=True):
        reply = settle(worker, verb, message["token"], batch=batch)
        assert refusal(reply, batch=batch) == "FORBIDDEN", verb
        assert server.state(message["id"]) == "claimed", verb
    for verb, message in zip(VERBS, kept, strict=True):
        if verb == "cancel":
            server.post(f"/v1/messages/{message['id']}/cancel")
        reply = settle(worker, verb, message["token"], batch=batch)
        assert refusal(reply, batch=batch) is None, verb
        assert server.state(message["id"]) == VERBS[verb][1], verb


def test_without_the_right_to_consume_nothing_is_settled(server: Served) -> None:
    queue = server.queue()
    set_role(server, "was-worker", "consume")
    worker = keyed(server, "was-worker", grants=["publish"])
    server.publish(queue)
    message = worker.claim_one(queue, lease=3600)
    set_role(server, "was-worker", "publish")
    until(lambda: settle(worker, "extend", message["token"], batch=False).status == 403)
    for verb in VERBS:
        for batch in (False, True):
            assert settle(worker, verb, message["token"], batch=batch).status == 403
    path = f"/v1/artifacts/{message['token']}/report.txt"
    assert worker.ask("PUT", path, b"x").status == 403
    assert server.state(message["id"]) == "claimed"
    set_role(server, "was-worker", "consume")
    until(lambda: worker.ask("PUT", path, b"x").status == 201)
    assert worker.post("/v1/complete", {"token": message["token"]}).status == 200


def test_a_file_is_attached_to_messages_of_allowed_queues_alone(server: Served) -> None:
    queue = server.queue()
    set_role(server, "attacher", "consume")
    worker = keyed(server, "attacher")
    server.publish(queue)
    message = worker.claim_one(queue, lease=3600)
    path = f"/v1/artifacts/{message['token']}/report.txt"
    assert worker.ask("PUT", path, b"x").status == 201
    set_role(server, "attacher", "consume", f"-consume:{queue}")
    until(lambda: worker.ask("PUT", path, b"x").status == 403)
    attached = {"name": "a.txt", "content": "eA=="}
    sent = {"token": message["token"], "artifacts": [attached]}
    assert worker.post("/v1/complete", sent).status == 403
    assert server.state(message["id"]) == "claimed"


def test_the_name_of_today_says_whose_right_it_is(server: Served) -> None:
    queue = server.queue()
    worker = keyed(server, grants=[f"consume:{queue}"])
    server.publish(queue)
    message = worker.claim_one(queue, lease=3600)
    assert server.post(f"/v1/queues/{queue}/rename", {"name": f"x-{queue}"}).status == 200
    until(lambda: settle(worker, "extend", message["token"], batch=False).status == 403)
    assert server.post(f"/v1/queues/x-{queue}/rename", {"name": queue}).status == 200
    until(lambda: settle(worker, "complete", message["token"], batch=False).status == 200)


def bury(server: Served, queue: str) -> str:
    id = server.publish(queue, {"of": queue})
    token = server.claim_one(queue)["token"]
    assert server.post("/v1/reject", {"token": token, "error": "no"}).status == 200
    return id


def claim_dead(worker: Served) -> Reply:
    return worker.post("/v1/claim", {"queues": [{"queue": LETTERS}], "limit": 100, "lease": 3600})


def test_a_denial_holds_for_dead_letters(server: Served) -> None:
    payroll, mail = server.queue(), server.queue()
    hidden, shown = bury(server, payroll), bury(server, mail)
    worker = keyed(server, "worker", grants=[f"-consume:{payroll}"])
    reply = claim_dead(worker)
    ids = [each["id"] for each in reply.json["messages"]]
    assert shown in ids
    assert hidden not in ids
    assert payroll not in reply.body.decode()
    assert server.state(hidden) == "dead"
    everything = [each["id"] for each in claim_dead(keyed(server, "worker")).json["messages"]]
    assert hidden in everything


def test_dead_letters_take_the_right_on_them_and_on_their_queue(server: Served) -> None:
    mail = server.queue()
    id = bury(server, mail)
    assert claim_dead(keyed(server, grants=[f"consume:{mail}"])).status == 403
    assert claim_dead(keyed(server, grants=[f"consume:{LETTERS}"])).status == 403
    worker = keyed(server, grants=[f"consume:{LETTERS}", f"consume:{mail}"])
    assert [each["id"] for each in claim_dead(worker).json["messages"]] == [id]


@pytest.mark.parametrize("taken", ["queue", "letters"])
def test_a_dead_letter_in_hand_is_settled_by_the_rights_of_the_moment(
    server: Served, taken: str
) -> None:
    mail = server.queue()
    id = bury(server, mail)
    grants = {"queue": f"consume:{mail}", "letters": f"consume:{LETTERS}"}
    set_role(server, f"undertaker-{taken}", *grants.values())
    worker = keyed(server, f"undertaker-{taken}")
    (message,) = claim_dead(worker).json["messages"]
    left = [text for name, text in grants.items() if name != taken]
    set_role(server, f"undertaker-{taken}", *left)
    until(lambda: settle(worker, "extend", message["token"], batch=False).status == 403)
    for batch in (False, True):
        reply = settle(worker, "complete", message["token"], batch=batch)
        assert refusal(reply, batch=batch) == "FORBIDDEN"
    set_role(server, f"undertaker-{taken}", *grants.values())
    until(lambda: settle(worker, "complete", message["token"], batch=False).status == 200)
    assert server.state(id) == "completed"


def test_callbacks_of_a_denied_queue_are_not_seen(server: Served) -> None:
    payroll = server.queue()
    id = server.publish(payroll, callback="https://example.org/done")
    token = server.claim_one(payroll)["token"]
    assert server.post("/v1/complete", {"token": token}).status == 200
    reader = keyed(server, "viewer", grants=[f"-read:{payroll}"])
    viewer = keyed(server, "viewer")
    for caller, status, seen in ((reader, 403, False), (viewer, 200, True)):
        assert caller.get("/v1/messages", queue="_callback").status == status
        assert caller.get("/v1/queues/_callback/export").status == status
        assert caller.get(f"/v1/messages/{id}/callbacks").status == status
        listed = caller.get("/v1/messages", limit=1000).json["messages"]
        assert any(each["queue"] == "_callback" for each in listed) is seen


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as running:
        yield running


def test_a_subject_settles_neither_for_a_key_nor_for_another_tenant(
    issuer: Issuer, folder: Path, tmp_path: Path
) -> None:
    words = (
        "--jwt-issuer", issuer.url, "--jwt-audience", AUDIENCE, "--jwks-url", issuer.url,
        "--jwt-tenant-claim", "org",
    )  # fmt: skip
    with serve_with_auth(f"sqlite:///{tmp_path}/subjects.db", folder, *words) as server:
        key = keyed(server, "worker")
        acme = showing(server, issuer.token(sub="w1", org="acme"))
        server.publish("default")
        acme.publish("default")
        held_by_key, held_by_acme = key.claim_one("default"), acme.claim_one("default")
        assert key.key is not None
        for subject, message in (
            (f"key:{key.key.split('_')[1]}", held_by_key),
            ("acme/w1", held_by_acme),
            ("acme/jwt:w1", held_by_acme),
        ):
            other = showing(server, issuer.token(sub=subject, org="default"))
            reply = other.post("/v1/complete", {"token": message["token"]})
            assert (reply.status, reply.code) == (403, "FORBIDDEN"), subject
        assert key.post("/v1/complete", {"token": held_by_key["token"]}).status == 200
        renewed = showing(server, issuer.token(sub="w1", org="acme", jti="2"))
        assert renewed.post("/v1/complete", {"token": held_by_acme["token"]}).status == 200


def test_a_claim_under_a_paused_scope_says_so(server: Served) -> None:
    server.post("/v1/scopes", {"name": "resting"})
    server.post("/v1/queues", {"name": "work"}, scope="resting")
    sent = {"queues": [{"queue": "work"}]}
    assert server.post("/v1/claim", sent, scope="resting").json["queues"] == {"work": "active"}
    server.post("/v1/scopes/resting/pause")
    until(
        lambda: server.post("/v1/claim", sent, scope="resting").json["queues"] == {"work": "paused"}
    )
    server.post("/v1/scopes/resting/resume")


def test_a_tree_is_cancelled_only_with_the_right_on_all_its_queues(server: Served) -> None:
    queue, other = server.queue(), server.queue()
    id = server.publish(queue)
    sent = {
        "token": server.claim_one(queue)["token"],
        "holds": [{"kind": "after", "after": {"children": [0]}}],
        "children": [{"queue": other}],
        "children_step": {"name": "gather", "kind": "gather", "position": 1, "done": False},
    }
    assert server.post("/v1/wait", sent).status == 200
    set_role(server, "half", f"manage:{queue}", f"read:{queue}")
    set_role(server, "whole", "manage:*")
    refused = keyed(server, "half").post(f"/v1/messages/{id}/cancel", {"tree": True})
    assert (refused.status, server.message(id)["state"]) == (403, "scheduled")
    done = keyed(server, "whole").post(f"/v1/messages/{id}/cancel", {"tree": True})
    assert (done.status, done.json["children"]) == (200, 1)


def test_the_act_of_a_redrive_from_a_step_lists_what_was_forgotten(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    token = server.claim_one(queue)["token"]
    for position, name in enumerate(("charge", "ship", "mail"), 1):
        step = {"name": name, "position": position, "result": 1}
        assert server.post("/v1/step", {"token": token, "step": step}).status == 200
    server.post("/v1/reject", {"token": token, "error": "no"})
    path = f"/v1/messages/{id}/redrive"
    assert server.post(path, {"from_step": "ship"}).status == 200
    acts = server.get("/v1/audit", target=path).json["acts"]
    assert {"steps": [["ship", "mail"], []]} in [act["changes"] for act in acts]
