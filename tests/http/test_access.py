"""API keys over HTTP: who is let in, and what each may do. Every refusal beside what is allowed."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.client import SyncClient
from penstock.errors import Forbidden, Unauthenticated
from penstock.model.message import Draft
from penstock.model.settings import SHELL_TYPE
from tests.cli.terminal import Terminal, until
from tests.http.keys import keyed, penstock, serve_with_auth, showing
from tests.http.served import Served, Stream, served


@pytest.fixture(scope="module")
def server(store: str, folder: Path) -> Iterator[Served]:
    with serve_with_auth(store, folder) as running:
        yield running


@pytest.fixture
def queue(server: Served) -> str:
    return server.queue()


def test_without_a_key_nobody_is_let_in_but_health_is_open(server: Served) -> None:
    nobody = showing(server, None)
    refused = nobody.get("/v1/queues")
    assert (refused.status, refused.code) == (401, "UNAUTHENTICATED")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert nobody.post("/v1/publish", {"queue": "default"}).status == 401
    assert nobody.get("/healthz").status == nobody.get("/readyz").status == 200
    assert nobody.get("/openapi.json").status == 200
    assert nobody.get("/nowhere").status == 401
    assert server.get("/v1/queues").status == 200


@pytest.mark.parametrize(
    "shown",
    ["", "Bearer", "Bearer ", "Bearer x", "Basic cm9vdDpyb290", "bearer psk_", "Bearer psk_1_",
     "Bearer psk_zz_secret", "Bearer a b", "Bearer " + "x" * 9_000, "Bearer a.b.c"],
)  # fmt: skip
def test_what_is_no_credential_does_not_open(server: Served, shown: str) -> None:
    nobody = showing(server, None)
    assert nobody.ask("GET", "/v1/queues", headers={"Authorization": shown}).status in (401, 429)


def test_a_key_in_the_address_does_not_open_and_is_not_logged(server: Served) -> None:
    nobody = showing(server, None)
    assert nobody.get("/v1/queues", access_token=server.key, key=server.key).status in (401, 429)
    assert server.key is not None
    assert server.key not in server.log.read_text()


def test_a_key_is_told_once_and_kept_as_a_digest(server: Served) -> None:
    made = server.post("/v1/keys", {"name": "once", "roles": ["viewer"]})
    assert made.json["key"].startswith(f"psk_{made.json['id']}_")
    listed = server.get("/v1/keys")
    assert made.json["id"] in listed.body.decode()
    assert made.json["key"] not in listed.body.decode()
    if server.store.startswith("sqlite"):
        with sqlite3.connect(server.store.removeprefix("sqlite:///")) as connection:
            dump = "".join(
                str(row) for row in connection.execute("SELECT * FROM penstock_document")
            )
        assert made.json["key"].rpartition("_")[2] not in dump
        assert made.json["id"] in dump


def test_a_producer_publishes_and_does_nothing_else(server: Served, queue: str) -> None:
    producer = keyed(server, "producer")
    id = producer.publish(queue, 1)
    assert producer.post("/v1/claim", {"queues": [{"queue": queue}]}).status == 403
    for path in (f"/v1/messages/{id}", "/v1/messages", "/v1/stats", "/metrics", "/v1/events"):
        assert producer.get(path).status == 403, path
    for path in (f"/v1/queues/{queue}/pause", f"/v1/messages/{id}/cancel", "/v1/keys"):
        assert producer.post(path, {"name": "x", "roles": ["admin"]}).status == 403, path
    assert server.state(id) == "ready"


def test_a_refused_claim_leaves_a_row_in_the_record(server: Served, queue: str) -> None:
    producer = keyed(server, "producer")
    assert producer.post("/v1/claim", {"queues": [{"queue": queue}]}).status == 403
    assert producer.key is not None
    subject = f"key:{producer.key.split('_')[1]}"

    def row() -> bool:
        acts = server.get("/v1/audit", limit=1000).json["acts"]
        return any(
            (each["subject"], each["verb"], each["target"], each.get("detail"))
            == (subject, "refused", "POST /v1/claim", "FORBIDDEN 1")
            for each in acts
        )

    until(row)
    worker = keyed(server, "worker")
    server.publish(queue)
    assert len(worker.claim(queue)) == 1


def test_a_worker_claims_and_settles_what_is_its_own(server: Served, queue: str) -> None:
    server.publish(queue)
    worker, other = keyed(server, "worker"), keyed(server, "worker")
    (message,) = worker.claim(queue)
    assert other.post("/v1/extend", {"token": message["token"], "lease": 9}).status == 403
    assert other.post("/v1/complete", {"token": message["token"]}).status == 403
    assert worker.post("/v1/publish", {"queue": queue}).status == 403
    assert worker.post("/v1/complete", {"token": message["token"]}).status == 200


def test_a_grant_is_for_its_queues(server: Served) -> None:
    ours, theirs = server.queue(), server.queue()
    caller = keyed(server, grants=[f"publish:{ours}", f"read:{ours}", f"manage:{ours}"])
    id = caller.publish(ours)
    other = server.publish(theirs)
    assert caller.post("/v1/publish", {"queue": theirs}).status == 403
    assert caller.get(f"/v1/messages/{id}").status == 200
    assert caller.get(f"/v1/messages/{other}").status == 403
    assert caller.get(f"/v1/queues/{theirs}").status == 403
    assert [each["name"] for each in caller.get("/v1/queues").json["queues"]] == [ours]
    assert [each["queue"] for each in caller.get("/v1/stats").json["queues"]] == [ours]
    assert {each["id"] for each in caller.get("/v1/messages").json["messages"]} == {id}
    assert caller.get("/v1/messages", queue=theirs).status == 403
    for verb in ("pause", "purge", "drain", "archive"):
        assert caller.post(f"/v1/queues/{theirs}/{verb}", {"places": ["ready"]}).status == 403
    assert caller.post(f"/v1/queues/{ours}/rename", {"name": "mine-now"}).status == 403
    assert caller.ask("DELETE", f"/v1/queues/{theirs}").status == 403
    assert caller.post("/v1/queues", {"name": "new"}).status == 403
    assert caller.post("/v1/scopes", {"name": "new"}).status == 403
    assert caller.post("/v1/scopes/default/pause").status == 403
    assert caller.get("/metrics").status == 403
    assert caller.post(f"/v1/queues/{ours}/pause").status == 200
    server.post(f"/v1/queues/{ours}/resume")


def test_of_many_each_message_answers_for_itself(server: Served) -> None:
    ours, theirs = server.queue(), server.queue()
    caller = keyed(server, grants=[f"publish:{ours}"])
    many = {"messages": [{"queue": ours}, {"queue": theirs}, {"queue": ours}]}
    reply = caller.post("/v1/publish/batch", many).json
    assert (reply["published"], reply["refused"]) == (2, 1)
    assert reply["items"][1]["error"]["code"] == "FORBIDDEN"
    assert caller.post("/v1/publish/batch", {**many, "atomic": True}).status == 403
    assert server.get("/v1/messages", queue=theirs).json["messages"] == []


def test_of_many_redriven_those_of_others_stay(server: Served) -> None:
    ours, theirs = server.queue(max_attempts=1), server.queue(max_attempts=1)
    dead = []
    for queue in (ours, theirs):
        dead.append(server.publish(queue))
        server.post("/v1/reject", {"token": server.claim_one(queue)["token"], "error": "no"})
    caller = keyed(server, grants=[f"manage:{ours}"])
    reply = caller.post("/v1/redrive", {"ids": [*dead, "999999"]}).json
    codes = [each.get("error", {}).get("code") for each in reply["items"]]
    assert codes == [None, "FORBIDDEN", "NOT_FOUND"]
    assert [server.state(id) for id in dead] == ["ready", "dead"]


def test_a_denial_wins(server: Served) -> None:
    payroll = server.queue()
    caller = keyed(server, "viewer", grants=[f"-read:{payroll}"])
    assert caller.get(f"/v1/queues/{payroll}").status == 403
    assert payroll not in caller.get("/v1/queues").body.decode()
    assert caller.get("/v1/queues/default").status == 200
    assert caller.get("/metrics").status == 403


def test_a_role_is_made_and_what_it_gives_changes_with_it(server: Served, queue: str) -> None:
    assert server.ask("PUT", "/v1/roles/mailer", {"grants": [f"publish:{queue}"]}).status == 200
    assert server.ask("PUT", "/v1/roles/admin", {"grants": ["read"]}).status == 403
    assert server.ask("PUT", "/v1/roles/x", {"grants": ["dance"]}).status == 422
    assert server.post("/v1/keys", {"name": "x", "roles": ["nothing"]}).status == 422
    caller = keyed(server, "mailer")
    caller.publish(queue)
    assert server.ask("DELETE", "/v1/roles/mailer").status == 204
    until(lambda: caller.post("/v1/publish", {"queue": queue}).status == 403)


def test_a_revoked_key_is_refused_within_seconds_on_every_server(
    store: str, folder: Path, server: Served, queue: str
) -> None:
    with served(store, folder, "--auth") as second:
        caller = keyed(server, "producer")
        elsewhere = showing(second, caller.key)
        caller.publish(queue)
        elsewhere.publish(queue)
        assert caller.key is not None
        assert server.ask("DELETE", f"/v1/keys/{caller.key.split('_')[1]}").status == 200
        until(lambda: elsewhere.post("/v1/publish", {"queue": queue}).status == 401)
        until(lambda: caller.post("/v1/publish", {"queue": queue}).status == 401)
        server.publish(queue)


def test_a_rotated_key_opens_with_its_new_secret_and_for_a_while_with_the_old(
    server: Served, queue: str
) -> None:
    caller = keyed(server, "operator")
    server.publish(queue)
    (message,) = caller.claim(queue)
    assert caller.key is not None
    id = caller.key.split("_")[1]
    rotated = server.post(f"/v1/keys/{id}/rotate", {"grace": 3600}).json
    new = showing(server, rotated["key"])
    assert rotated["id"] == id
    assert rotated["key"] != caller.key
    assert caller.get("/v1/queues").status == new.get("/v1/queues").status == 200
    # Who it is has not changed: what it claimed is still its own.
    assert new.post("/v1/complete", {"token": message["token"]}).status == 200
    last = server.post(f"/v1/keys/{id}/rotate").json
    until(lambda: new.get("/v1/queues").status == 401)
    assert showing(server, last["key"]).get("/v1/queues").status == 200


def test_a_key_ends_when_it_was_to(server: Served) -> None:
    caller = keyed(server, "viewer", ttl=1)
    until(lambda: caller.get("/v1/queues").status == 401)


def test_types_of_a_key_are_all_it_is_served(server: Served, queue: str) -> None:
    server.publish(queue, type="a.b")
    server.publish(queue, type="c")
    caller = keyed(server, "worker", types=["c"])
    wrong = {"queues": [{"queue": queue, "types": ["a.b"]}]}
    assert caller.post("/v1/claim", wrong).status == 403
    assert caller.post("/v1/claim", {"queues": [{"queue": queue, "types": ["C"]}]}).status == 403
    assert [each["type"] for each in caller.claim(queue, limit=10)] == ["c"]


def test_a_caller_of_another_scope_needs_a_trust(server: Served) -> None:
    server.post("/v1/scopes", {"name": "orders"})
    server.post("/v1/scopes", {"name": "billing"})
    for name in ("inbox", "ledger"):
        server.post("/v1/queues", {"name": name}, scope="billing")
    server.post("/v1/queues", {"name": "work"}, scope="orders")
    caller = keyed(server, "producer", scopes=["orders"])
    assert caller.post("/v1/publish", {"queue": "work"}, scope="orders").status == 201
    assert caller.post("/v1/publish", {"queue": "inbox"}, scope="billing").status == 403
    assert caller.post("/v1/publish", {"queue": "default"}).status == 403
    trust = server.ask("PUT", "/v1/trusts/billing/orders", {"grants": ["publish:inbox"]})
    assert trust.status == 200
    until(lambda: caller.post("/v1/publish", {"queue": "inbox"}, scope="billing").status == 201)
    assert caller.post("/v1/publish", {"queue": "ledger"}, scope="billing").status == 403
    assert server.ask("DELETE", "/v1/trusts/billing/orders").status == 204
    until(lambda: caller.post("/v1/publish", {"queue": "inbox"}, scope="billing").status == 403)


def test_another_tenant_sees_nothing_of_ours(server: Served, queue: str) -> None:
    id = server.publish(queue, {"secret": 1})
    message = server.claim_one(queue)
    other = keyed(server, "admin", tenant="acme")
    for path in ("", "/result", "/artifacts", "/callbacks"):
        assert other.get(f"/v1/messages/{id}{path}").status == 404, path
    for verb in ("cancel", "redrive", "purge"):
        assert other.post(f"/v1/messages/{id}/{verb}").status == 404, verb
    assert other.post("/v1/complete", {"token": message["token"]}).status == 403
    assert other.post("/v1/publish", {"queue": queue}).status == 404
    assert queue not in other.get("/v1/queues").body.decode()
    assert id not in {each["id"] for each in other.get("/v1/messages").json["messages"]}
    for path in ("/metrics", "/v1/system-agents"):
        assert other.get(path).status == 403, path
    server.ask("PUT", "/v1/workers/ours", {"host": "box", "pid": 1, "queues": []})
    assert other.get("/v1/workers").json["workers"] == []
    assert other.ask("DELETE", "/v1/workers/ours").status == 204
    assert other.post("/v1/workers/ours/stop").status == 404
    assert keyed(server, "producer").get("/v1/workers").status == 403
    assert "ours" in keyed(server, "worker").get("/v1/workers").body.decode()
    server.ask("DELETE", "/v1/workers/ours")
    assert "acme" in other.get("/v1/keys").body.decode()
    assert "root" not in other.get("/v1/keys").body.decode()
    assert {each["tenant"] for each in other.get("/v1/audit").json["acts"]} <= {"acme"}
    assert (
        other.post("/v1/keys", {"name": "x", "roles": ["admin"], "tenant": "default"}).status == 403
    )
    assert other.post("/v1/publish", {"queue": "default", "tenant": "default"}).status == 422
    mine = other.publish("default", 1)
    assert server.get(f"/v1/messages/{mine}").status == 404
    assert other.get(f"/v1/messages/{mine}").status == 200


def test_the_same_key_of_two_tenants_is_two_messages(server: Served) -> None:
    other = keyed(server, "operator", tenant="acme")
    dedup = {"dedup": {"key": "same"}}
    ours = server.publish("default", 1, **dedup)
    theirs = other.post("/v1/publish", {"queue": "default", "body": 2, **dedup})
    assert theirs.status == 201
    assert theirs.json["id"] != ours


def test_live_events_are_of_what_the_caller_may_read(server: Served) -> None:
    ours, theirs = server.queue(), server.queue()
    caller = keyed(server, grants=[f"read:{ours}"])
    stream = Stream(caller)
    try:
        server.publish(theirs)
        id = server.publish(ours)
        seen = stream.until("message.published", id)
        assert {each["queue"] for each in seen} == {ours}
    finally:
        stream.close()


def test_nobody_gives_more_than_they_have(server: Served, queue: str) -> None:
    caller = keyed(server, grants=["access", "publish"])
    assert caller.post("/v1/keys", {"name": "x", "roles": ["admin"]}).status == 403
    assert caller.post("/v1/keys", {"name": "x", "grants": ["shell"]}).status == 403
    assert server.post("/v1/keys", {"name": "x", "roles": ["shell"]}).status == 403
    assert caller.ask("PUT", "/v1/roles/mighty", {"grants": ["*"]}).status == 403
    assert server.key is not None
    assert caller.post(f"/v1/keys/{server.key.split('_')[1]}/rotate").status == 403
    assert caller.post("/v1/keys", {"name": "x", "grants": [f"publish:{queue}"]}).status == 201


def test_shell_jobs_need_a_role_of_their_own(folder: Path, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shell.db"
    job = {"queue": "shell", "type": SHELL_TYPE, "body": {"command": "true"}}
    with serve_with_auth(store, folder, "--allow-shell") as server:
        server.post("/v1/queues", {"name": "shell", "settings": {"shell": True}})
        made = penstock(store, "key", "create", "s", "--role", "shell", "--role", "producer")
        assert server.post("/v1/publish", job).status == 403
        assert showing(server, made["key"]).post("/v1/publish", job).status == 201


def test_what_operators_do_is_written_down(server: Served, queue: str) -> None:
    caller = keyed(server, "operator")
    paused = caller.ask("POST", f"/v1/queues/{queue}/pause", headers={"X-Request-Id": "req-7"})
    assert paused.status == 200
    acts = server.get("/v1/audit").json["acts"]
    (act,) = [each for each in acts if each.get("request_id") == "req-7"]
    assert caller.key is not None
    assert act["subject"] == f"key:{caller.key.split('_')[1]}"
    assert (act["verb"], act["target"]) == (
        "Pause a queue",
        f"/v1/queues/{queue}/pause",
    )
    assert caller.get("/v1/audit").status == 403
    assert caller.key not in server.get("/v1/audit", limit=1000).body.decode()


def test_the_record_is_read_page_by_page(server: Served, queue: str) -> None:
    for verb in ("pause", "resume", "drain", "resume"):
        server.post(f"/v1/queues/{queue}/{verb}")
    first = server.get("/v1/audit", limit=2).json
    second = server.get("/v1/audit", limit=2, cursor=first["cursor"]).json
    ids = [int(each["id"]) for each in [*first["acts"], *second["acts"]]]
    assert ids == sorted(ids, reverse=True)
    assert len(set(ids)) == 4
    assert server.get("/v1/audit", cursor=first["cursor"][:-1] + "!").status == 400


def test_who_tries_too_many_keys_has_to_wait(folder: Path, tmp_path: Path) -> None:
    with serve_with_auth(f"sqlite:///{tmp_path}/tries.db", folder) as server:
        assert server.get("/v1/queues").status == 200
        wrong = [showing(server, f"psk_{n:x}_wrong").get("/v1/queues").status for n in range(60)]
        assert wrong[0] == 401
        assert wrong[-1] == 429
        # A valid key is not refused because of others' wrong ones, even at its first use.
        assert server.get("/v1/queues").status == 200
        assert keyed(server, "viewer").get("/v1/queues").status == 200

        def row() -> bool:
            details = [each.get("detail", "") for each in server.get("/v1/audit").json["acts"]]
            return any(each.startswith("UNAUTHENTICATED") for each in details)

        until(row)


def test_a_caller_that_asks_too_often_has_to_wait(server: Served) -> None:
    caller = keyed(server, "viewer", rate=2)
    statuses = [caller.get("/v1/queues/default").status for _ in range(40)]
    assert statuses[0] == 200
    refused = caller.get("/v1/queues/default")
    while refused.status == 200:
        refused = caller.get("/v1/queues/default")
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (
        429,
        "RATE_LIMITED",
        "1",
    )
    assert server.get("/v1/queues/default").status == 200


def test_an_app_and_its_worker_show_their_keys(server: Served) -> None:
    producer, worker = keyed(server, "producer", "viewer"), keyed(server, "worker")
    url = f"http://127.0.0.1:{server.port}"

    async def go() -> int:
        app, hands = Penstock(url, key=producer.key), Penstock(url, key=worker.key)

        @app.task(name="double")
        async def unused(x: int) -> int:
            raise NotImplementedError

        @hands.task(name="double")
        async def double(x: int) -> int:
            return 2 * x

        job = await unused.aenqueue(21)
        async with await hands.worker():
            return await job.aresult(timeout=30)

    assert asyncio.run(go()) == 42


@pytest.mark.parametrize(("roles", "error"), [(None, Unauthenticated), (["viewer"], Forbidden)])
def test_a_client_raises_what_it_was_refused_with(
    server: Served, roles: list[str] | None, error: type[Exception]
) -> None:
    key = "psk_1_wrong" if roles is None else keyed(server, *roles).key
    with SyncClient(f"http://127.0.0.1:{server.port}", key=key) as client, pytest.raises(error):
        client.publish(Draft())


def test_without_auth_a_server_listens_on_loopback_alone(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    said = terminal.run("serve", "--host", "0.0.0.0", "--port", "0", code=1)
    assert "--auth" in said.err
    said = terminal.run("serve", "--jwks-url", "http://far.example/keys", "--port", "0", code=1)
    assert "jwt_issuer" in said.err


def test_the_secret_of_callbacks_is_for_those_who_give_access(server: Served) -> None:
    for role in ("viewer", "operator", "worker", "producer"):
        other = keyed(server, role)
        assert other.get("/v1/callbacks/secret").code == "FORBIDDEN"
        assert other.post("/v1/callbacks/secret/rotate").code == "FORBIDDEN"
    assert server.get("/v1/callbacks/secret").json["secret"].startswith("whsec_")


def test_of_the_work_of_a_queue_those_are_told_who_may_claim_it(server: Served, queue: str) -> None:
    url, other = "https://example.org/wake", server.queue()
    mine = keyed(server, grants=[f"consume:{queue}"])
    made = mine.post("/v1/subscriptions", {"url": url, "queues": [queue]})
    theirs = server.post("/v1/subscriptions", {"url": url, "queues": [other]})
    assert (made.status, theirs.status) == (201, 201)
    assert (
        mine.post("/v1/subscriptions", {"url": url, "queues": [queue, other]}).code == "FORBIDDEN"
    )
    assert keyed(server, "producer").get("/v1/subscriptions").code == "FORBIDDEN"
    listed = mine.get("/v1/subscriptions").json["subscriptions"]
    assert [each["id"] for each in listed] == [made.json["id"]]
    path = f"/v1/subscriptions/{theirs.json['id']}"
    assert mine.post(f"{path}/heartbeat").code == "FORBIDDEN"
    assert mine.ask("DELETE", path).code == "FORBIDDEN"
    assert server.ask("DELETE", path).status == 204


def test_a_worker_over_http_ends_when_nothing_is_left(server: Served, tmp_path: Path) -> None:
    """As a process, by the command: the key comes from the environment."""
    queue, terminal = server.queue(), Terminal(tmp_path)
    caller = keyed(server, "operator")
    url = f"http://127.0.0.1:{server.port}"
    text = f"""
from penstock import Penstock
app = Penstock({url!r})
@app.task(name="add", queue={queue!r})
def add(a: int, b: int) -> int:
    return a + b
"""
    terminal.write("shop.py", text)
    assert caller.key is not None
    terminal.environment |= {"PENSTOCK_KEY": caller.key, "PYTHONPATH": str(tmp_path)}
    sent = terminal.run("send", "add", 2, 3, "--app", "shop:app", "--json").json
    terminal.run("worker", "start", "shop:app", "--stop-when-empty")
    assert server.get(f"/v1/messages/{sent['id']}/result").json == 5


def test_a_message_belongs_to_the_trace_of_its_request(server: Served, queue: str) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for shown, kept in ((trace, trace), ("nonsense", None)):
        sent = server.ask("POST", "/v1/publish", {"queue": queue}, {"traceparent": shown})
        assert server.message(sent.json["id"]).get("traceparent") == kept


def test_the_audit_log_is_filtered_and_verified(server: Served) -> None:
    queue = server.queue()
    server.post(f"/v1/queues/{queue}/pause")
    acts = server.get("/v1/audit", target=queue, refused="false").json["acts"]
    assert [queue in act["target"] for act in acts] == [True] * len(acts)
    assert acts
    assert server.get("/v1/audit", subject="nobody").json["acts"] == []
    assert server.get("/v1/audit", since="2999-01-01T00:00:00Z").json["acts"] == []
    assert server.get("/v1/audit", since="soon").status == 422
    report = server.get("/v1/audit/verify").json
    assert (report["intact"], report["findings"]) == (True, [])
    seal = until(lambda: (found := server.get("/v1/audit/seal").json["seal"])[:2] != "0:" and found)
    assert server.get("/v1/audit/verify", known=seal).json["intact"]
    number, _, hash = seal.partition(":")
    forged = server.get("/v1/audit/verify", known=f"{number}:{hash[::-1]}").json
    assert (forged["intact"], forged["findings"][0]["finding"]) == (False, "changed")
    assert server.get("/v1/audit/verify", known="x").status == 422


def test_a_search_leaves_out_queues_that_the_caller_may_not_read(server: Served) -> None:
    ours, payroll = server.queue(), server.queue()
    story = f"story-{ours}"
    mine, _ = (server.publish(queue, correlation_id=story) for queue in (ours, payroll))
    caller = keyed(server, "viewer", grants=[f"-read:{payroll}"])
    found = caller.get("/v1/messages", filter=f"correlation:{story}").json["messages"]
    assert [message["id"] for message in found] == [mine]
    assert caller.get("/v1/messages", filter=f"queue:{payroll}").json["messages"] == []
    assert len(server.get("/v1/messages", filter=f"correlation:{story}").json["messages"]) == 2
