"""Rules for every operation: parameters, pages, idempotency keys, ways to send a key."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.client import SyncClient
from penstock.http.routes import OPERATIONS
from tests.http.keys import serve_with_auth, showing
from tests.http.served import Served


def fill_in(path: str) -> str:
    return "/".join("1" if "{" in word else word for word in path.split("/"))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
def test_an_unknown_query_parameter_is_refused_everywhere(operation: Any, server: Served) -> None:
    reply = server.ask(operation.method, fill_in(operation.path) + "?lmit=5", {})
    assert (reply.status, reply.code) == (422, "INVALID_INPUT"), reply
    (detail,) = reply.json["error"]["details"]
    assert detail["field"] == "lmit"
    if "limit" in operation.in_query:
        assert "did you mean 'limit'?" in reply.json["error"]["message"]


def test_the_known_parameters_are_named_if_none_is_near(server: Served) -> None:
    text = server.get("/v1/messages", zzz=1).json["error"]["message"]
    assert text == (
        "unknown query parameter 'zzz'; expected one of bodies, correlation_id, cursor, filter,"
        " limit, name, queue, scope, state, type"
    )
    text = server.get("/healthz", zzz=1).json["error"]["message"]
    assert text == "unknown query parameter 'zzz'; this operation takes none"


@pytest.mark.parametrize(
    ("path", "field", "advice"),
    [
        ("/v1/publish", "scope", "the scope is a query parameter: ?scope=NAME"),
        ("/v1/publish", "payload", "did you mean 'body'?"),
        ("/v1/publish", "maxAttempts", "did you mean 'max_attempts'?"),
        ("/v1/claim", "leaseSeconds", "did you mean 'lease'?"),
        ("/v1/claim", "timeout", "did you mean 'wait'?"),
        ("/v1/complete", "lock_token", "did you mean 'token'?"),
        ("/v1/subscriptions", "deliveryMode", "did you mean 'mode'?"),
    ],
)
def test_an_unknown_field_of_a_body_is_refused_with_advice(
    server: Served, path: str, field: str, advice: str
) -> None:
    reply = server.post(path, {field: "x"})
    assert reply.status == 422
    said = f"Object contains unknown field `{field}`; {advice}"
    assert reply.json["error"]["message"] == f"body: {said}"


def test_a_path_names_all_its_methods(server: Served) -> None:
    reply = server.ask("OPTIONS", "/v1/keys")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, POST")
    reply = server.ask("OPTIONS", "/v1/queues/mail")
    assert (reply.status, reply.headers["allow"]) == (405, "DELETE, GET, PATCH, PUT")


def test_health_has_two_names(server: Served) -> None:
    for path in ("/health", "/healthz"):
        assert server.get(path).json == {"status": "ok"}
        assert server.ask("HEAD", path).status == 200


@pytest.mark.parametrize("path", ["/v1/publish", "/v1/queues"])
def test_text_that_is_not_utf_8_is_refused(server: Served, path: str) -> None:
    for body in (b'{"body": "\xff"}', b'{"name": "\xff"}'):
        reply = server.ask("POST", path, body)
        assert (reply.status, reply.code) == (400, "MALFORMED"), reply


def test_a_worker_id_ends_where_its_line_ends(server: Served) -> None:
    present = {"host": "far", "pid": 1, "queues": []}
    assert server.ask("PUT", "/v1/workers/w1%0A", present).status == 422


def test_autoscaling_counts_by_whole_seconds(server: Served) -> None:
    for value in ("5e-324", "nan", "inf"):
        assert server.get("/v1/autoscale", catch_up=value).status == 422


def test_a_moment_that_no_store_keeps_is_refused_with_the_last_one(server: Served) -> None:
    reply = server.post("/v1/publish", {"run_at": "9999-12-31T23:59:59Z"})
    assert (reply.status, "2255-06-05T23:47:34Z" in reply.json["error"]["message"]) == (422, True)


# Idempotency keys.


def publish(server: Served, key: str, body: Any) -> Any:
    return server.ask("POST", "/v1/publish", body, {"Idempotency-Key": key})


def test_a_repeated_publish_with_an_idempotency_key_is_one_message(server: Served) -> None:
    queue = server.queue()
    first, second = (publish(server, "order-7", {"queue": queue, "body": 1}) for _ in range(2))
    assert (first.status, first.json["duplicate"]) == (201, False)
    assert (second.status, second.json) == (201, {"id": first.json["id"], "duplicate": True})
    other = publish(server, "order-7", {"queue": queue, "body": 2})
    assert (other.status, other.code) == (409, "IDEMPOTENCY_CONFLICT")
    assert publish(server, "order-8", {"queue": queue, "body": 2}).json["duplicate"] is False


def test_each_message_of_a_batch_has_its_own_idempotency_key(server: Served) -> None:
    sent = {"messages": [{"queue": server.queue(), "body": 1}] * 2}
    first, second = (
        server.ask("POST", "/v1/publish/batch", sent, {"Idempotency-Key": "b"}).json["items"]
        for _ in range(2)
    )
    assert first[0]["id"] != first[1]["id"]
    assert second == [{"id": each["id"], "duplicate": True} for each in first]


@pytest.mark.parametrize("key", ["", "x" * 191, "é"])
def test_an_idempotency_key_that_cannot_be_kept_is_refused(server: Served, key: str) -> None:
    assert publish(server, key.encode().decode("latin-1"), {"queue": server.queue()}).status == 422


def test_an_idempotency_key_and_a_dedup_key_exclude_each_other(server: Served) -> None:
    reply = publish(server, "a", {"queue": server.queue(), "dedup": {"key": "b"}})
    assert (reply.status, "mutually exclusive" in reply.json["error"]["message"]) == (422, True)


# Pages.


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("many")
    with serve_with_auth(f"sqlite:///{home}/queue.db", home) as server:
        for number in range(5):
            for path, body in (
                ("/v1/queues", {"name": f"q{number}"}),
                ("/v1/scopes", {"name": f"s{number}"}),
                ("/v1/keys", {"name": f"k{number}", "roles": ["viewer"]}),
                ("/v1/subscriptions", {"url": "https://example.org/", "queues": [f"q{number}"]}),
            ):
                assert server.post(path, body).status == 201
            saved = server.ask("PUT", f"/v1/queues/q{number}/schedules/n", {"cron": "0 0 1 1 *"})
            assert saved.status == 200, saved
        yield server


@pytest.mark.parametrize(
    ("path", "field", "key"),
    [
        ("/v1/queues", "queues", "name"),
        ("/v1/scopes", "scopes", "name"),
        ("/v1/keys", "keys", "id"),
        ("/v1/subscriptions", "subscriptions", "id"),
        ("/v1/schedules", "schedules", "queue"),
        ("/v1/stats", "queues", "queue"),
        ("/v1/autoscale", "queues", "queue"),
    ],
)
def test_a_long_list_comes_in_pages(many: Served, path: str, field: str, key: str) -> None:
    whole = many.get(path).json
    assert "cursor" not in whole
    names = [each[key] for each in whole[field]]
    assert len(names) >= 5
    assert names == sorted(names)
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while not seen or cursor:
        page = many.get(path, limit=2, **cursor).json
        assert len(page[field]) <= 2
        seen += [each[key] for each in page[field]]
        cursor = {"cursor": page["cursor"]} if "cursor" in page else {}
    assert seen == names
    assert many.get(path, limit=0).status == 422
    assert many.get(path, limit=2, cursor="made.up").status == 400


def test_a_cursor_belongs_to_its_list(many: Served) -> None:
    cursor = many.get("/v1/queues", limit=2).json["cursor"]
    assert many.get("/v1/stats", limit=2, cursor=cursor).status == 400
    assert many.get("/v1/queues", limit=2, cursor=cursor).status == 200


def test_the_client_reads_all_pages(many: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    with SyncClient(f"http://127.0.0.1:{many.port}", key=many.key) as client:
        assert {f"q{number}" for number in range(5)} <= {
            queue.name for queue in client.admin.queues()
        }
        assert len(client.admin.schedules()) == 5


# Credentials.


def test_a_key_may_be_sent_as_x_api_key(many: Served) -> None:
    nobody = showing(many, None)
    assert nobody.ask("GET", "/v1/keys", None, {"X-API-Key": many.key or ""}).status == 200
    assert nobody.ask("GET", "/v1/keys", None, {"X-API-KEY": "psk_0_wrong"}).status == 401
    both = {"X-API-Key": many.key or ""}
    assert many.ask("GET", "/v1/keys", None, both).status == 200
    assert many.ask("GET", "/v1/keys", None, {"X-API-Key": "psk_0_other"}).status == 401


def test_a_message_whose_name_is_a_route_is_found_by_name(server: Served) -> None:
    queue = server.queue()
    for name in ("result", "x/artifacts"):
        id = server.post("/v1/publish", {"queue": queue, "name": name}).json["id"]
        (found,) = server.get("/v1/messages", queue=queue, name=name).json["messages"]
        assert (found["id"], found["name"]) == (id, name)
    assert server.get("/v1/messages", queue=queue, name="none").json == {"messages": []}
    assert server.get("/v1/messages", name="result").status == 422
