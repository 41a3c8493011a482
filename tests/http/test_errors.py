"""Errors have one shape, whichever way a request takes; and every bad request is refused."""

import json
from pathlib import Path

import pytest

from tests.http.served import Served, raw, served

HOT, COLD = "/v1/publish", "/v1/queues"
DEEP = b'{"body": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def right(path: str, queue: str) -> dict[str, str]:
    return {"queue": queue} if path == HOT else {"name": f"new-{queue}"}


@pytest.mark.parametrize("path", [HOT, COLD])
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "MALFORMED"),
        (b"{", 400, "MALFORMED"),
        (b"\xff", 400, "MALFORMED"),
        (b'{"NAME": "\\ud800"}', 400, "MALFORMED"),
        (DEEP, 400, "MALFORMED"),
        (b"[]", 422, "INVALID_INPUT"),
        (b'{"surprise": 1}', 422, "INVALID_INPUT"),
        (b'{"NAME": 7}', 422, "INVALID_INPUT"),
        (b'{"NAME": "a b"}', 422, "INVALID_INPUT"),
        (b'{"NAME": "_mine"}', 403, "FORBIDDEN"),
    ],
)
def test_a_bad_body_is_refused_in_the_same_words_on_both_ways(
    server: Served, path: str, body: bytes, status: int, code: str
) -> None:
    if path == COLD and body == DEEP:
        status, code = 422, "INVALID_INPUT"
    sent = body.replace(b"NAME", b"queue" if path == HOT else b"name")
    reply = server.ask("POST", path, sent, {"x-request-id": "mine"})
    assert (reply.status, reply.code) == (status, code), reply
    assert reply.headers["content-type"] == "application/json"
    error = reply.json["error"]
    assert set(error) == {"code", "message", "details", "request_id"}
    assert (error["request_id"], reply.headers["x-request-id"]) == ("mine", "mine")
    assert server.post(path, right(path, server.queue())).status == 201


def test_a_wrong_field_is_named(server: Served) -> None:
    (hot,) = server.post(HOT, {"priority": "high"}).json["error"]["details"]
    assert (hot["field"], "int" in hot["message"]) == ("priority", True)
    (cold,) = server.get("/v1/messages", limit=0).json["error"]["details"]
    assert (cold["field"], ">= 1" in cold["message"]) == ("limit", True)


@pytest.mark.parametrize("path", [HOT, COLD])
def test_a_request_gets_an_id_of_its_own_unless_it_brings_a_fit_one(
    server: Served, path: str
) -> None:
    given = [server.post(path, {}).headers["x-request-id"] for _ in range(2)]
    assert given[0] != given[1]
    long = server.ask("POST", path, {}, {"x-request-id": "x" * 129})
    assert long.headers["x-request-id"] != "x" * 129


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "NOT_FOUND"),
        ("POST", "/v1/publish/", 404, "NOT_FOUND"),
        ("GET", HOT, 405, "METHOD_NOT_ALLOWED"),
        ("DELETE", HOT, 405, "METHOD_NOT_ALLOWED"),
        ("PUT", COLD, 405, "METHOD_NOT_ALLOWED"),
        ("TRACE", COLD, 405, "METHOD_NOT_ALLOWED"),
        ("OPTIONS", COLD, 405, "METHOD_NOT_ALLOWED"),
    ],
)
def test_a_wrong_path_or_method_is_refused_in_the_same_shape(
    server: Served, method: str, path: str, status: int, code: str
) -> None:
    reply = server.ask(method, path)
    assert (reply.status, reply.code) == (status, code)
    assert ("allow" in reply.headers) == (status == 405)


@pytest.mark.parametrize("path", [HOT, COLD])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_past_the_limit_is_refused_also_in_pieces(
    small_server: Served, path: str, chunked: bool
) -> None:
    body = b'{"queue": "' + b"x" * 5_000 + b'"}'
    if chunked:
        text = b"%x\r\n%b\r\n" % (len(body), body) + b"400\r\n" + b"x" * 0x400 + b"\r\n"
        head = b"Transfer-Encoding: chunked"
    else:
        text, head = body, b"Content-Length: %d" % len(body)
    said = raw(small_server, b"POST %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n\r\n%b" % (
        path.encode(), head, text))  # fmt: skip
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b'"BODY_TOO_LARGE"' in said
    assert small_server.post(path, right(path, small_server.queue())).status == 201


@pytest.mark.parametrize("path", [HOT, COLD])
@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:7070"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
def test_a_web_page_of_another_site_is_not_the_operator(
    server: Served, path: str, headers: dict[str, str]
) -> None:
    body = right(path, server.queue())
    refused = server.ask("POST", path, body, headers)
    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    ours = {"Host": f"localhost:{server.port}", "Origin": f"http://localhost:{server.port}"}
    assert server.ask("POST", path, body, ours).status == 201


def test_a_full_queue_says_when_to_come_back(server: Served) -> None:
    queue = server.queue(max_depth=1)
    server.publish(queue)
    full = server.post(HOT, {"queue": queue})
    assert (full.status, full.code, full.headers["retry-after"]) == (429, "QUEUE_FULL", "1")


@pytest.mark.parametrize(
    ("state", "code"), [("drain", "QUEUE_DRAINING"), ("archive", "QUEUE_ARCHIVED")]
)
def test_a_closed_queue_has_its_own_code(server: Served, state: str, code: str) -> None:
    queue = server.queue()
    server.publish(queue)
    server.post(f"/v1/queues/{queue}/{state}")
    refused = server.post(HOT, {"queue": queue})
    assert (refused.status, refused.code) == (409, code)


@pytest.mark.parametrize(
    "sent",
    [
        {"priority": 2**31},
        {"priority": 1.5},
        {"delay": -1},
        {"delay": 1e300},
        {"lease": 0},
        {"lease": 10**9},
        {"max_attempts": 0},
        {"run_at": "2030-01-01T00:00:00"},
        {"run_at": "tomorrow"},
        {"run_at": "1901-01-01T00:00:00Z"},
        {"name": "\x00"},
        {"type": ""},
        {"body_base64": "*"},
        {"body": 1, "body_base64": "MQ=="},
        {"content_type": "x" * 201},
        {"state": "completed"},
        {"attempts": 3},
        {"tenant": "other"},
        {"parent_id": "99999999999999999999"},
        {"type": "penstock.shell"},
        {"headers": {"a": "x" * 9_000}},
    ],
    ids=str,
)
def test_a_bad_value_is_refused_and_writes_nothing(server: Served, sent: dict[str, object]) -> None:
    queue = server.queue()
    reply = server.post(HOT, {"queue": queue, **sent})
    assert reply.status in (403, 422), reply
    assert server.get("/v1/messages", queue=queue).json["messages"] == []
    assert server.post(HOT, {"queue": queue, "type": "right"}).status == 201


@pytest.mark.parametrize(
    ("query", "status"),
    [("scop=x", 422), ("scope=nowhere", 404), ("scope=", 422), ("&", 201), ("%ff=%00", 422),
     ("&".join(["scope=default"] * 1_000), 201)],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_a_hot_route_takes_a_scope_and_no_other_parameter(
    server: Served, query: str, status: int
) -> None:
    assert server.post(f"{HOT}?{query}", {}).status == status


@pytest.mark.parametrize("reference", ["999999999", "nowhere/x", "default/x"])
def test_an_unknown_message_is_not_found(server: Served, reference: str) -> None:
    for path in (f"/v1/messages/{reference}", f"/v1/messages/{reference}/result"):
        assert (server.get(path).status, server.get(path).code) == (404, "NOT_FOUND")
    for verb in ("cancel", "redrive", "purge"):
        assert server.post(f"/v1/messages/{reference}/{verb}").code == "NOT_FOUND"


def test_shell_jobs_are_refused_whichever_way_they_come(server: Served) -> None:
    queue = server.queue(shell=True)
    job = {"queue": queue, "type": "penstock.shell", "body": {"command": "true"}}
    line = json.dumps(job).encode()
    for reply in (
        server.post(HOT, job),
        server.post("/v1/publish/batch", {"messages": [{"queue": queue}, job]}),
        server.ask("PUT", f"/v1/queues/{queue}/schedules/s", {"cron": "* * * * *", "message": job}),
    ):
        assert (reply.status, reply.code) == (403, "FORBIDDEN")
    imported = server.ask("POST", f"/v1/queues/{queue}/import", line).json
    assert [error["code"] for error in imported["errors"]] == ["FORBIDDEN"]
    assert server.get("/v1/messages", queue=queue).json["messages"] == []


def test_shell_jobs_are_taken_where_they_are_allowed(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path}/q.db", tmp_path, "--allow-shell") as server:
        queue = server.queue(shell=True)
        assert server.publish(queue, {"command": "true"}, type="penstock.shell")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000,
        b"GET /" + b"x" * 70_000,
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: 1\r\n" * 10_000 + b"\r\n",
    ],
    ids=["a header without end", "a path without end", "headers without end"],
)
def test_a_head_without_end_is_cut_off(server: Served, head: bytes) -> None:
    assert raw(server, head).startswith(b"HTTP/1.1 400 ")


def test_a_long_body_behind_a_short_head_is_read(server: Served) -> None:
    queue = server.queue()
    assert server.post("/v1/publish", {"queue": queue, "body": "x" * 300_000}).status == 201
