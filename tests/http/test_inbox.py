"""Human steps over HTTP: the inbox, ScaiQueue's words, and links that need a click."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from tests.http.keys import keyed, serve_with_auth, showing
from tests.http.served import Reply, Served

FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def server(store: str, folder: Path) -> Iterator[Served]:
    with serve_with_auth(store, folder) as running:
        yield running


@pytest.fixture(scope="module")
def finance(server: Served) -> Served:
    server.ask("PUT", "/v1/roles/finance", {"grants": ["consume:nothing"]})
    return keyed(server, "finance")


def request(server: Served, **fields: Any) -> str:
    spec = {"title": "Refund?", "assign": {"roles": ["finance"]}, **fields}
    reply = server.post("/v1/inbox", {"spec": spec})
    assert reply.status == 201, reply
    return str(reply.json["id"])


def test_a_role_finds_and_decides_its_step_and_others_do_not(
    server: Served, finance: Served
) -> None:
    id = request(server, decision=["pay", {"id": "refuse", "requires": ["why"]}],
                 input={"why": {"type": "string"}})  # fmt: skip
    stranger = keyed(server, "viewer")
    assert id in [step["id"] for step in finance.get("/v1/inbox").json["steps"]]
    assert stranger.get("/v1/inbox", view="all").json["steps"] == []
    assert stranger.get(f"/v1/inbox/{id}").status == 404
    assert stranger.post(f"/v1/inbox/{id}/decide", {"choice": "pay"}).status == 404
    path = f"/v1/inbox/{id}/decide"
    assert finance.post(path, {"choice": "maybe"}).status == 422
    assert finance.post(path, {"choice": "refuse"}).status == 422
    assert finance.post(path, {"choice": "pay", "inputs": {"x": 1}}).status == 422
    decided = finance.post(path, {"choice": "refuse", "inputs": {"why": "no receipt"}}).json
    assert decided["state"] == "completed"
    assert decided["decision"]["inputs"] == {"why": "no receipt"}
    again = finance.post(path, {"choice": "pay"})
    assert (again.status, again.code) == (409, "ALREADY_DECIDED")
    acts = server.get("/v1/audit", verb="Decide a human step").json["acts"]
    (changes,) = [act["changes"] for act in acts if act["target"] == path]
    assert changes == {
        "choice": [None, "refuse"], "spec_digest": [None, decided["decision"]["digest"]]
    }  # fmt: skip


def test_the_words_of_scaiqueue_are_understood(server: Served, finance: Served) -> None:
    pattern = {
        "spec": {
            "context": "Please read: {{summary}}",
            "decision": {"options": ["publish", "drop"]},
            "assign": {"roles": ["finance"]},
            "timeout_s": 3_600,
            "on_timeout": "expire",
        }
    }
    assert server.ask("PUT", "/v1/human-patterns/draft", pattern).json["version"] >= 1
    sent = {"hitl_pattern": "draft", "params": {"summary": "<b>A</b> draft"}}
    id = server.post("/v1/inbox", sent).json["id"]
    step = finance.get(f"/v1/inbox/{id}").json
    assert step["content"] == "Please read: \\<b\\>A\\</b\\> draft"
    assert [option["id"] for option in step["options"]] == ["publish", "drop"]
    assert server.post("/v1/inbox", {"hitl_pattern": "draft", "params": {}}).status == 422
    assert server.post("/v1/inbox", {"hitl_pattern": "none", "params": {}}).status == 404


def test_several_people_agree_and_talk(server: Served, finance: Served) -> None:
    id = request(server, approvals=2)
    other = keyed(server, "finance")
    assert finance.post(f"/v1/inbox/{id}/claim").json["claimed_by"]
    assert other.post(f"/v1/inbox/{id}/claim").status == 409
    assert other.post(f"/v1/inbox/{id}/comment", {"text": "Why?"}).json["comments"]
    first = finance.post(f"/v1/inbox/{id}/decide", {"choice": "approve"}).json
    assert (first["state"], len(first["approvals"])) == ("scheduled", 1)
    last = other.post(f"/v1/inbox/{id}/decide", {"choice": "approve"}).json
    assert len(last["decision"]["approvals"]) == 2
    acts = server.get("/v1/audit", target=f"/v1/inbox/{id}/decide").json["acts"]
    digest = last["decision"]["digest"]
    assert [act["changes"]["spec_digest"] for act in acts] == [[None, digest]] * 2


def make_link(server: Served, id: str, **fields: Any) -> str:
    made = server.post(f"/v1/inbox/{id}/links", {"person": "ann", **fields})
    assert made.status == 201, made
    return str(urlsplit(made.json["url"]).path)


def open_page(server: Served, path: str) -> tuple[Reply, str, str]:
    page = showing(server, None).ask("GET", path)
    nonce = re.search(rb'name="nonce" value="(\w+)"', page.body)
    cookie = page.headers.get("set-cookie", "").partition(";")[0]
    return page, "" if nonce is None else nonce[1].decode(), cookie


def send_form(server: Served, path: str, cookie: str, **fields: str) -> Reply:
    headers = {"content-type": FORM, **({"cookie": cookie} if cookie else {})}
    return showing(server, None).ask("POST", path, urlencode(fields).encode(), headers)


def test_a_link_decides_by_a_click_alone(server: Served, finance: Served) -> None:
    id = request(server, assign={"users": ["ann"]}, input={"sum": {"type": "integer"}})
    path = make_link(server, id)
    for method in ("HEAD", "GET", "OPTIONS", "GET"):
        showing(server, None).ask(method, path)
    page, nonce, cookie = open_page(server, path)
    assert page.status == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "same-origin"
    # A form without the cookie or the nonce of its page is not a click on this page.
    assert send_form(server, path, "", nonce=nonce, choice="approve").status == 403
    assert send_form(server, path, cookie, nonce="0", choice="approve").status == 403
    wrong = {"nonce": nonce, "choice": "approve", "input.sum": "many"}
    assert send_form(server, path, cookie, **wrong).status == 422
    assert server.get(f"/v1/inbox/{id}").json["state"] == "scheduled"
    page, nonce, cookie = open_page(server, path)
    right = {"nonce": nonce, "choice": "approve", "input.sum": "5"}
    assert (
        b"Decided: <strong>Approve</strong>, by ann"
        in send_form(server, path, cookie, **right).body
    )
    assert server.get(f"/v1/inbox/{id}").json["decision"]["inputs"] == {"sum": 5}
    again = send_form(server, path, cookie, **{**right, "choice": "reject"})
    assert b"<strong>Approve</strong>" in again.body
    assert b"Decided" in showing(server, None).ask("GET", path).body
    acts = server.get("/v1/audit", verb="Decide a human step by a link").json["acts"]
    (act,) = [act for act in acts if act["target"] == f"/v1/inbox/{id}"]
    digest = server.get(f"/v1/inbox/{id}").json["decision"]["digest"]
    assert (act["subject"], act["changes"]["spec_digest"]) == ("ann", [None, digest])


PREFETCH = ({"sec-purpose": "prefetch"}, {"sec-purpose": "prefetch;prerender"},
            {"purpose": "prefetch"}, {"x-moz": "prefetch"}, {"x-purpose": "preview"})  # fmt: skip


def test_scanners_of_links_decide_nothing(server: Served) -> None:
    id = request(server, assign={"users": ["ann"]})
    path = make_link(server, id)
    scanner = showing(server, None)
    for method in ("GET", "HEAD", "OPTIONS"):
        for address in (path, f"{path}?choice=approve", f"{path}?choice=approve&nonce=0"):
            scanner.ask(method, address)
    for headers in PREFETCH:
        assert scanner.ask("GET", path, None, headers).status == 200
    for method in ("PUT", "PATCH", "DELETE"):
        sent = scanner.ask(method, path, b"choice=approve", {"content-type": FORM})
        assert sent.status in (401, 405)
    # A scanner that follows the form has not loaded the page of a browser with its cookie.
    for fields in ({}, {"choice": "approve"}):
        assert send_form(server, path, "", **fields).status == 403
    found = server.get(f"/v1/inbox/{id}").json
    assert (found["state"], found.get("decision")) == ("scheduled", None)


def test_a_link_of_another_step_or_person_does_not_work(server: Served) -> None:
    first = make_link(server, request(server, assign={"users": ["ann"]}))
    forged = first[:-6] + ("AAAAAA" if first[-6:] != "AAAAAA" else "BBBBBB")
    assert showing(server, None).ask("GET", forged).status == 404
    id = request(server, assign={"users": ["bob"]})
    path = make_link(server, id)
    _, nonce, cookie = open_page(server, path)
    assert send_form(server, path, cookie, nonce=nonce, choice="approve").status in (403, 404)
    assert server.get(f"/v1/inbox/{id}").json["state"] == "scheduled"


def test_a_step_of_several_people_needs_a_login(server: Served) -> None:
    id = request(server, approvals=2, assign={"users": ["ann", "bob"]})
    page, nonce, _ = open_page(server, make_link(server, id))
    assert (nonce, b"Log in" in page.body) == ("", True)


def test_a_step_of_several_people_by_links_shows_what_each_chose(server: Served) -> None:
    spec = {"approvals": 2, "require_login": False, "assign": {"users": ["ann", "bob"]}}
    id = request(server, **spec)
    path = make_link(server, id)
    _, nonce, cookie = open_page(server, path)
    chosen = b"You chose <strong>Approve</strong>"
    assert chosen in send_form(server, path, cookie, nonce=nonce, choice="approve").body
    again = send_form(server, path, cookie, nonce=nonce, choice="reject")
    assert (again.status, chosen in again.body) == (200, True)
    page, nonce, _ = open_page(server, path)
    assert (nonce, chosen in page.body) == ("", True)
    other = make_link(server, id, person="bob")
    _, nonce, cookie = open_page(server, other)
    assert b"Decided" in send_form(server, other, cookie, nonce=nonce, choice="approve").body
    (first, last) = server.get(f"/v1/inbox/{id}").json["decision"]["approvals"]
    assert (first["by"], first["choice"], last["by"]) == ("ann", "approve", "bob")


def test_a_step_of_one_person_can_need_a_login(server: Served) -> None:
    id = request(server, require_login=True, assign={"users": ["ann"]})
    page, nonce, _ = open_page(server, make_link(server, id))
    assert (nonce, b"Log in" in page.body, b"Several" in page.body) == ("", True, False)


def test_webhooks_about_steps_need_the_right_access(server: Served, finance: Served) -> None:
    new = {"name": "chat", "url": "https://example.org/hook"}
    assert finance.post("/v1/human-webhooks", new).status == 403
    assert keyed(server, "viewer").get("/v1/human-webhooks").status == 403
    made = server.post("/v1/human-webhooks", new)
    assert (made.status, made.json["links"], made.json["error"]) == (201, False, None)
    assert server.post("/v1/human-webhooks", new).status == 409
    assert server.post("/v1/human-webhooks", {**new, "url": "ftp://x"}).status == 422
    assert server.post("/v1/human-webhooks", {**new, "name": "l", "links": True}).status == 422
    listed = server.get("/v1/human-webhooks").json["webhooks"]
    assert "chat" in [each["name"] for each in listed]
    assert server.ask("DELETE", "/v1/human-webhooks/chat").status == 204
    assert server.ask("DELETE", "/v1/human-webhooks/chat").status == 404


def test_who_published_a_message_does_not_decide_what_its_run_asks(
    server: Served, finance: Served
) -> None:
    queue = server.queue()
    server.ask("PUT", "/v1/roles/clerk", {"grants": [f"publish:{queue}", "consume:nothing"]})
    clerk = keyed(server, "clerk", "finance")
    id = clerk.post("/v1/publish", {"queue": queue, "body": 1}).json["id"]
    publisher = server.get(f"/v1/messages/{id}").json["publisher"]
    subjects = {act["subject"] for act in server.get("/v1/audit").json["acts"]}
    assert publisher
    assert publisher not in subjects
    (held,) = server.post("/v1/claim", {"queues": [{"queue": queue}]}).json["messages"]
    spec = {"title": "Refund?", "assign": {"roles": ["finance"]}}
    asked = {"queue": "_human", "body": {"spec": spec}}
    child = {"queue": queue, "body": 2}
    reply = server.post("/v1/wait", {
        "token": held["token"], "reason": "human", "children": [asked, child],
        "holds": [{"kind": "after", "after": {"children": [0]}}],
    })  # fmt: skip
    assert reply.status == 200, reply
    (step,) = [
        each for each in finance.get("/v1/inbox").json["steps"] if each["requester"] == publisher
    ]
    path = f"/v1/inbox/{step['id']}/decide"
    refused = clerk.post(path, {"choice": "approve"})
    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    (other,) = server.get("/v1/messages", queue=queue, state="ready").json["messages"]
    assert server.get(f"/v1/messages/{other['id']}").json["publisher"] == publisher
    assert finance.post(path, {"choice": "approve"}).status == 200


def test_a_caller_cannot_name_another_publisher(server: Served) -> None:
    reply = server.post("/v1/publish", {"queue": server.queue(), "body": 1, "publisher": "ann"})
    assert (reply.status, reply.code) == (422, "INVALID_INPUT")
