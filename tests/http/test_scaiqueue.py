"""What users of ScaiQueue expect, by real servers: its cases of the acceptance list."""

from contextlib import closing

import pytest

from tests.cli.terminal import until
from tests.http.served import Later, Served, Stream


@pytest.fixture(scope="module")
def server(every_server: Served) -> Served:
    return every_server


@pytest.fixture
def queue(server: Served) -> str:
    return server.queue("scaiqueue")


def test_a_new_scope_has_its_dead_letters_and_a_second_one_is_a_conflict(server: Served) -> None:
    scope = f"scope-{server.queue()}"
    assert server.post("/v1/scopes", {"name": scope}).status == 201
    queues = server.get("/v1/queues", scope=scope).json["queues"]
    assert [(each["name"], each["system"]) for each in queues] == [("_dead_letter", True)]
    again = server.post("/v1/scopes", {"name": scope})
    assert (again.status, again.code) == (409, "SLUG_CONFLICT")


@pytest.mark.parametrize(
    ("verb", "code"),
    [("pause", "QUEUE_PAUSED"), ("drain", "QUEUE_DRAINING"), ("archive", "QUEUE_ARCHIVED")],
)
def test_a_queue_that_is_not_active_refuses_with_its_own_code(
    server: Served, queue: str, verb: str, code: str
) -> None:
    server.post(f"/v1/queues/{queue}/{verb}")
    assert server.post("/v1/publish", {"queue": queue}).code == code
    assert server.get("/v1/messages", queue=queue).json["messages"] == []


def test_a_paused_queue_of_the_default_preset_accepts(server: Served) -> None:
    queue = server.queue()
    server.post(f"/v1/queues/{queue}/pause")
    assert server.post("/v1/publish", {"queue": queue}).status == 201


def test_a_thousand_messages_of_one_second_are_drained_in_publish_order(server: Served) -> None:
    queue = server.queue("scaiqueue", ordering="fifo", aging=False)
    messages = [{"queue": queue, "body": number} for number in range(1_000)]
    assert server.post("/v1/publish/batch", {"messages": messages}).json["published"] == 1_000
    drained: list[int] = []
    while found := server.claim(queue, limit=300):
        drained += [message["body"] for message in found]
    assert drained == list(range(1_000))


def test_tiers_are_drained_critical_normal_low(server: Served, queue: str) -> None:
    tiers = {"low": 1_000, "critical": 4_000, "normal": 2_000}
    for name, priority in tiers.items():
        server.publish(queue, name, priority=priority)
    found = [message["body"] for message in server.claim(queue, limit=3)]
    assert found == ["critical", "normal", "low"]


def test_the_earliest_deadline_is_first_and_none_is_last(server: Served) -> None:
    queue = server.queue("scaiqueue", ordering="deadline", aging=False)
    for body, deadline in (("none", None), ("late", "2090-01-02T00:00:00Z"),
                           ("early", "2090-01-01T00:00:00Z")):  # fmt: skip
        server.publish(queue, body, **({} if deadline is None else {"deadline": deadline}))
    assert [message["body"] for message in server.claim(queue, limit=3)] == [
        "early",
        "late",
        "none",
    ]


def test_a_claim_moves_one_from_ready_to_claimed(server: Served, queue: str) -> None:
    id = server.publish(queue)
    server.claim_one(queue, consumer="me")
    told = server.message(id)
    assert (told["state"], told["deliveries"], told["consumer"]) == ("claimed", 1, "me")


def test_eight_consumers_get_every_message_exactly_once(server: Served, queue: str) -> None:
    messages = [{"queue": queue, "body": number} for number in range(1_000)]
    for _ in range(2):
        server.post("/v1/publish/batch", {"messages": messages})

    def drain(name: str) -> list[str]:
        ids: list[str] = []
        while found := server.claim(queue, limit=37, consumer=name):
            ids += [message["id"] for message in found]
            items = [{"token": message["token"]} for message in found]
            assert server.post("/v1/complete/batch", {"items": items}).json["refused"] == 0
        return ids

    drains = [Later(drain, f"c{number}") for number in range(8)]
    ids = [id for each in drains for id in each.result()]
    assert (len(ids), len(set(ids))) == (2_000, 2_000)


def test_a_completed_message_is_one_event_with_its_correlation_id(
    server: Served, queue: str
) -> None:
    with closing(Stream(server, queue=queue, kind="message.completed")) as stream:
        id = server.publish(queue, correlation_id="order-7")
        server.post("/v1/complete", {"token": server.claim_one(queue)["token"]})
        event = stream.event()
    assert (event["id"], event["correlation_id"]) == (id, "order-7")


def test_five_failures_are_four_retries_and_a_dead_letter(server: Served, queue: str) -> None:
    id = server.publish(queue)
    for _ in range(5):
        token = server.claim_one(queue)["token"]
        server.post("/v1/nack", {"token": token, "error": "boom", "delay": 0})
    told = server.message(id)
    assert (told["state"], told["reason"], told["error"]) == ("dead", "retries_exhausted", "boom")
    asked = {"queues": [{"queue": "_dead_letter"}], "limit": 1_000}
    dead = server.post("/v1/claim", asked).json["messages"]
    (letter,) = [message for message in dead if message["id"] == id]
    assert letter["queue"] == queue
    server.post("/v1/release/batch", {"items": [{"token": each["token"]} for each in dead]})


def test_ttl_ends_what_waits_and_not_what_is_claimed(server: Served, queue: str) -> None:
    held = server.publish(queue, ttl=10)
    server.claim_one(queue, lease=600)
    waiting = server.publish(queue, ttl=0.1, delay=0.2)
    until(lambda: server.claim(queue) == [] and server.state(waiting) == "expired")
    assert server.state(held) == "claimed"


def test_the_same_key_and_body_are_one_message_for_fifty_at_once(
    server: Served, queue: str
) -> None:
    sent = {"queue": queue, "body": 1, "dedup": {"key": f"key-{queue}"}}
    calls = [Later(server.post, "/v1/publish", sent) for _ in range(50)]
    assert len({call.result().json["id"] for call in calls}) == 1
    other = server.post("/v1/publish", {**sent, "body": 2})
    assert (other.status, other.code) == (409, "IDEMPOTENCY_CONFLICT")


def test_the_eleventh_of_ten_is_refused(server: Served) -> None:
    queue = server.queue("scaiqueue", max_depth=10)
    replies = [server.post("/v1/publish", {"queue": queue}) for _ in range(11)]
    assert [reply.status for reply in replies] == [201] * 10 + [429]
    assert replies[-1].code == "QUEUE_FULL"


def test_a_correlation_id_over_three_queues_is_found_whole(server: Served) -> None:
    queues = [server.queue("scaiqueue") for _ in range(3)]
    story = f"story-{queues[0]}"
    ids = [server.publish(queue, correlation_id=story) for queue in queues]
    found = server.get("/v1/messages", correlation_id=story).json["messages"]
    assert [message["id"] for message in found] == ids[::-1]


def test_the_system_agents_are_told_with_runs_that_advance(server: Served) -> None:
    def runs() -> int:
        return sum(each["runs"] for each in server.get("/v1/system-agents").json["agents"])

    first = runs()
    assert len(server.get("/v1/system-agents").json["agents"]) >= 5
    until(lambda: runs() > first)


def test_a_body_that_breaks_the_schema_is_refused_with_its_fields(
    server: Served, queue: str
) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n", "id"]}
    assert server.post(f"/v1/schemas/{queue}", {"schema": schema}).json["version"] == 1
    assert server.put(f"/v1/queues/{queue}/schemas", {"schema": queue}).status == 200
    refused = server.post("/v1/publish", {"queue": queue, "body": {"n": "secret"}})
    assert (refused.status, refused.code) == (422, "SCHEMA_MISMATCH")
    fields = {each["field"]: each["message"] for each in refused.json["error"]["details"]}
    assert fields == {
        "/n": 'type: the value is not of type "integer"',
        "": 'required: "id" is a required property',
    }
    assert "secret" not in str(refused.json)
    good = {"queue": queue, "body": {"n": 1, "id": 2}}
    assert server.post("/v1/publish", good).status == 201
    batch = server.post("/v1/publish/batch", {"messages": [good, {"queue": queue, "body": 1}]})
    assert batch.json["items"][1]["error"]["code"] == "SCHEMA_MISMATCH"
    assert batch.json["published"] == 1


def test_a_scope_is_ensured_archived_and_unarchived(server: Served) -> None:
    scope = f"scope-{server.queue()}"
    for _ in range(2):
        made = server.put(f"/v1/scopes/{scope}", {"display_name": "Shop"})
        assert (made.status, made.json["state"]) == (200, "active")
        assert server.put("/v1/queues/q", {"settings": {"purpose": "x"}}, scope=scope).status == 200
    assert server.post(f"/v1/scopes/{scope}/archive").json["state"] == "archived"
    assert server.post("/v1/publish", {"queue": "q"}, scope=scope).code == "SCOPE_ARCHIVED"
    assert server.post(f"/v1/scopes/{scope}/unarchive").json["state"] == "active"
    assert server.post("/v1/publish", {"queue": "q"}, scope=scope).status == 201
    shown = server.get(f"/v1/scopes/{scope}").json
    assert (shown["display_name"], shown["paused"]) == ("Shop", False)


def test_a_topology_is_planned_applied_and_exported(server: Served) -> None:
    name = server.queue()
    toml = f'name = "{name}"\n[[queue]]\nname = "{name}-orders"\nmax_attempts = 3\n'
    planned = server.put("/v1/topology", {"toml": toml}, plan="true").json
    assert (planned["changes"], planned["applied"], len(planned["steps"])) == (True, False, 1)
    assert server.put("/v1/topology", {"toml": toml}).json["applied"]
    assert not server.put("/v1/topology", {"toml": toml}).json["applied"]
    exported = server.get("/v1/topology", name=name).json["topology"]
    assert exported["queue"] == [{"name": f"{name}-orders", "max_attempts": 3}]
    wrong = {"topology": {"name": name, "queue": [{"name": "x", "max_atempts": 1}]}}
    refused = server.put("/v1/topology", wrong)
    assert (refused.status, refused.code) == (422, "INVALID_INPUT")
    assert refused.json["error"]["details"][0]["field"] == "queue[1] 'x'"


def test_messages_and_queues_are_taken_in_scaiqueues_words(server: Served) -> None:
    words = {"visibility_timeout_s": 60, "max_retries": 4, "consumer_mode": "competing"}
    queue = server.queue("scaiqueue", **words)
    settings = server.get(f"/v1/queues/{queue}").json["settings"]
    assert (settings["lease"], settings["max_attempts"]) == (60, 4)
    message = {
        "queue": queue, "priority_tier": "high", "priority_score": 250, "idempotency_key": queue,
        "visibility_timeout_s": 90, "max_retries": 2, "source_type": "agent", "source_id": "7",
    }  # fmt: skip
    published = server.post("/v1/publish", message)
    again = server.post("/v1/publish", message)
    assert (again.json["id"], again.json["duplicate"]) == (published.json["id"], True)
    shown = server.get(f"/v1/messages/{published.json['id']}").json
    assert (shown["priority"], shown["max_attempts"], shown["lease"]) == (3_250, 2, 90)
    assert shown["headers"] == {"source_type": "agent", "source_id": "7"}
    twice = server.post("/v1/publish", {"queue": queue, "priority": 1, "priority_tier": "low"})
    assert (twice.status, twice.code) == (422, "INVALID_INPUT")
    body = {"queues": [{"queue": queue}], "visibility_timeout_s": 120}
    assert len(server.post("/v1/claim", body).json["messages"]) == 1


def test_a_subscription_that_replays_a_message_learns_that_it_is_a_duplicate(
    server: Served,
) -> None:
    queue = server.queue(kind="broadcast")
    assert server.put(f"/v1/queues/{queue}/subscriptions/mailer", {}).status == 200
    asked = {"queue": f"{queue}/mailer", "key": "order-7"}
    server.publish(queue, "order-7")
    (message,) = server.claim(f"{queue}/mailer")
    assert server.post("/v1/seen", asked).json == {"duplicate": False}
    done = server.post("/v1/complete", {"token": message["token"], "seen": ["order-7"]})
    assert done.status == 200
    server.publish(queue, "order-7")
    assert server.claim(f"{queue}/mailer")[0]["body"] == "order-7"
    assert server.post("/v1/seen", asked).json == {"duplicate": True, "id": message["id"]}
    assert server.post("/v1/seen", {**asked, "key": ""}).status == 422
    assert server.post("/v1/seen", {**asked, "queue": f"{queue}/none"}).status == 404


def test_under_a_paused_scope_a_claim_is_empty(server: Served) -> None:
    scope = f"scope-{server.queue()}"
    server.post("/v1/scopes", {"name": scope})
    server.put("/v1/queues/q", {}, scope=scope)
    server.post("/v1/publish", {"queue": "q"}, scope=scope)
    claim = {"queues": [{"queue": "q"}]}
    assert server.post(f"/v1/scopes/{scope}/pause").status == 200
    assert server.post("/v1/claim", claim, scope=scope).json["messages"] == []
    assert server.post(f"/v1/scopes/{scope}/resume").status == 200
    assert len(server.post("/v1/claim", claim, scope=scope).json["messages"]) == 1


def test_what_a_consumer_left_behind_is_claimable_after_its_visibility_timeout(
    server: Served, queue: str
) -> None:
    id = server.publish(queue)
    assert server.claim(queue, visibility_timeout_s=1)[0]["id"] == id
    until(lambda: server.claim(queue) != [])
    shown = server.message(id)
    assert (shown["state"], shown["deliveries"]) == ("claimed", 2)


def test_a_copy_that_fails_leaves_the_others_completed(server: Served) -> None:
    queue = server.queue(consumer_mode="broadcast")
    for name in "abc":
        path = f"/v1/queues/{queue}/subscriptions/{name}"
        assert server.put(path, {"settings": {"max_attempts": 1}}).status == 200
    server.publish(queue, {"n": 1})
    copies = {name: server.claim_one(f"{queue}/{name}") for name in "abc"}
    for name, copy in copies.items():
        verb = "nack" if name == "b" else "complete"
        assert server.post(f"/v1/{verb}", {"token": copy["token"]}).status == 200
    states = [server.state(copy["id"]) for copy in copies.values()]
    assert states == ["completed", "dead", "completed"]
    (dead,) = server.get("/v1/messages", queue=f"{queue}/b", state="dead").json["messages"]
    assert dead["id"] == copies["b"]["id"]
    redriven = server.post("/v1/redrive", {"queue": f"{queue}/b"})
    assert redriven.json["redriven"] == 1
    assert server.claim_one(f"{queue}/b")["body"] == {"n": 1}


def test_a_premium_order_is_routed_by_the_first_rule_only(server: Served) -> None:
    orders, premium, other = (server.queue() for _ in range(3))
    for order, target in ((1, premium), (2, other)):
        rule = {
            "queue": orders,
            "order": order,
            "when": "message.labels.customer_tier == 'premium'",
            "do": [{"route": target}],
        }
        assert server.put(f"/v1/rules/{orders}-{order}", rule).status == 200
    message = {"queue": orders, "labels": {"customer_tier": "premium"}, "correlation_id": "c"}
    published = server.post("/v1/publish", message).json
    assert published["routed"] == [premium]
    taken = server.claim_one(premium)
    assert (taken["id"], taken["correlation_id"]) == (published["id"], "c")
    assert taken["causation_id"] == f"rule:{orders}-1@1"
    assert server.claim(orders) == server.claim(other) == []


def test_a_rule_routes_to_another_scope_only_with_its_trust(server: Served) -> None:
    orders, scope = server.queue(), f"scope-{server.queue()}"
    server.post("/v1/scopes", {"name": scope})
    server.put("/v1/queues/inbox", {}, scope=scope)
    path, trust = f"/v1/rules/{orders}", f"/v1/trusts/{scope}/default"
    rule = {"queue": orders, "do": [{"route": f"{scope}:inbox"}]}
    refused = server.put(path, rule)
    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    assert server.get(path).status == 404
    assert server.put(trust, {"grants": ["publish:inbox"]}).status == 200
    assert server.put(path, rule).status == 200
    server.publish(orders)
    claim = {"queues": [{"queue": "inbox"}]}
    assert len(server.post("/v1/claim", claim, scope=scope).json["messages"]) == 1
    assert server.ask("DELETE", trust).status == 204
    until(lambda: "routed" not in server.post("/v1/publish", {"queue": orders}).json)
    # The process that notices it tells the others at its next look.
    until(lambda: bool(server.get(path).json.get("suspended")))
    assert len(server.claim(orders)) == 1
