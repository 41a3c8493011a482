"""What is sent to do harm is refused, or is only text; the same request, meant well, is served."""

import gzip
import json
from typing import Any

import pytest

from tests.http.served import Served

SQL = "'; DROP TABLE message; --"
LUA = "') redis.call('FLUSHALL') --"
ODD = [SQL, LUA, '"}]}\\', "${jndi:ldap://x}", "{{7*7}}", "{0.__class__}", "=cmd|' /C calc'!A0",
       "<script>alert(1)</script>", "\u202eright to left", "\U0001f98a"]  # fmt: skip


@pytest.fixture
def queue(server: Served) -> str:
    return server.queue()


@pytest.mark.parametrize("text", ODD)
def test_a_text_is_only_a_text(server: Served, queue: str, text: str) -> None:
    given: dict[str, Any] = {
        "type": text[:100], "name": text[:100], "correlation_id": text[:100],
        "headers": {"h": text}, "labels": {"l": text[:100]}, "body": {text: text},
    }  # fmt: skip
    id = server.publish(queue, **given)
    told = server.message(id)
    assert {name: told[name] for name in given} == given
    found = server.get("/v1/messages", correlation_id=given["correlation_id"]).json["messages"]
    assert [each["id"] for each in found if each["queue"] == queue] == [id]
    message = server.claim_one(queue, consumer=text[:100])
    assert message["body"] == {text: text}
    nacked = server.post("/v1/reject", {"token": message["token"], "error": text})
    assert nacked.status == 200
    assert server.message(id)["error"] == text


@pytest.mark.parametrize(
    "field", ["state", "attempts", "deliveries", "created_at", "token", "id", "tenant", "fence"]
)
def test_nobody_says_what_is_not_theirs_to_say(server: Served, queue: str, field: str) -> None:
    assert server.post("/v1/publish", {"queue": queue, field: "1"}).status == 422
    assert server.post("/v1/publish", {"queue": queue}).status == 201


@pytest.mark.parametrize(
    "name", ["a:b", "a}{b", "*", "a\r\nb", "a b", "", "ü", "x" * 10_000, "../a", "a/b", "\x00"]
)
def test_a_queue_has_no_such_name(server: Served, name: str) -> None:
    assert server.post("/v1/queues", {"name": name}).status == 422
    assert server.post("/v1/publish", {"queue": name}).status in (404, 422)


@pytest.mark.parametrize("name", ["_dead_letter", "_callback", "_other"])
def test_nobody_publishes_to_the_system_s_queues(server: Served, name: str) -> None:
    assert server.post("/v1/publish", {"queue": name}).status in (403, 404)
    assert server.post("/v1/queues", {"name": name}).status == 403


def test_the_token_is_told_to_the_holder_alone(server: Served, queue: str) -> None:
    id = server.publish(queue)
    token = server.claim_one(queue)["token"]
    mac = token.rpartition(".")[2]
    for reply in (
        server.get(f"/v1/messages/{id}"),
        server.get("/v1/messages", queue=queue),
        server.get(f"/v1/queues/{queue}/export"),
    ):
        assert reply.status == 200
        assert mac not in reply.body.decode()


@pytest.mark.parametrize("method", ["OPTIONS", "HEAD", "TRACE", "PUT", "CONNECT", "BREW"])
@pytest.mark.parametrize("path", ["/v1/publish", "/v1/queues"])
def test_a_method_is_the_one_that_is_said(server: Served, method: str, path: str) -> None:
    assert server.ask(method, path).status in (400, 404, 405)


def test_a_method_is_not_said_by_a_header(server: Served, queue: str) -> None:
    headers = {"X-HTTP-Method-Override": "DELETE", "X-Method-Override": "DELETE"}
    assert server.ask("GET", f"/v1/queues/{queue}", headers=headers).status == 200
    assert server.get(f"/v1/queues/{queue}").status == 200


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"queue": "Q", "priority": NaN}',
        b'{"queue": "Q", "delay": Infinity}',
        b'{"queue": "Q", "delay": 1e400}',
        b'{"queue": "Q", "priority": 9223372036854775808}',
        b'{"queue": "Q", "type": "\\ud800"}',
        b'{"queue": "Q", "type": "a\\u0000b"}',
        b'\xff\xfe{"queue": "Q"}',
        gzip.compress(b'{"queue": "Q"}'),
    ],
    ids=range(10),
)
def test_what_is_not_json_as_we_take_it(server: Served, queue: str, body: bytes) -> None:
    sent = body.replace(b"Q", queue.encode())
    assert server.post("/v1/publish", sent).status in (400, 422)
    assert server.post("/v1/queues", sent).status in (400, 422)
    assert server.get("/v1/messages", queue=queue).json["messages"] == []


def test_a_field_said_twice_is_the_last_one(server: Served, queue: str) -> None:
    sent = json.dumps({"queue": queue})[:-1] + ', "type": "a", "type": "b"}'
    id = server.post("/v1/publish", sent.encode()).json["id"]
    assert server.message(id)["type"] == "b"


@pytest.mark.parametrize(
    "cron", ["* * 31 2 *", "*/0 * * * *", "61 * * * *", "", "x" * 100_000, "@reboot", "* * * *"]
)
def test_a_schedule_that_never_comes(server: Served, queue: str, cron: str) -> None:
    path = f"/v1/queues/{queue}/schedules/s"
    assert server.ask("PUT", path, {"cron": cron, "message": {}}).status == 422
    assert server.ask("PUT", path, {"cron": "0 3 * * *", "message": {}}).status == 200


@pytest.mark.parametrize(
    "query", [{"limit": 10**9}, {"limit": 0}, {"limit": -1}, {"state": "x"}, {"cursor": "7.x"}]
)
def test_a_page_has_an_end(server: Served, query: dict[str, Any]) -> None:
    assert server.get("/v1/messages", **query).status in (400, 422)
    assert server.get("/v1/messages", limit=1).status == 200


def test_a_log_line_is_one_line(server: Served) -> None:
    bad = "/v1/nowhere%0d%0aadmin%20logged%20in%1b[2J"
    assert server.get(bad).status == 404
    reply = server.ask("GET", "/v1/queues", headers={"X-Request-Id": "a\x1b[2Jb"})
    assert "\x1b" not in reply.headers.get("x-request-id", "")
    log = server.log.read_text()
    assert "\nadmin logged in" not in log
    assert "\x1b" not in log
