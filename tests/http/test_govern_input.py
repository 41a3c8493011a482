"""Rules, schemas, topologies and subscriptions with mistakes, or made to do harm."""

import json
from typing import Any

import pytest

from penstock.model.settings import SHELL_TYPE
from tests.http.served import Later, Served

NESTED = {"anyOf": [{"properties": {"a": {"$ref": "#"}}, "required": [each]} for each in "xy"]}


def test_a_loop_of_conditional_routes_leaves_the_message_where_it_was_addressed(
    server: Served,
) -> None:
    there, back = server.queue(), server.queue()
    server.put(f"/v1/rules/{there}", {"queue": there, "do": [{"route": back}]})
    unconditional = server.put(f"/v1/rules/{back}", {"queue": back, "do": [{"route": there}]})
    assert "creates a cycle of unconditional routes" in unconditional.json["error"]["message"]
    rule = {"queue": back, "when": "message.priority >= 0", "do": [{"route": there}]}
    assert server.put(f"/v1/rules/{back}", rule).status == 200
    assert server.post("/v1/publish", {"queue": there, "body": 1}).json["routed"] == [there]
    assert server.claim_one(there)["body"] == 1


@pytest.mark.parametrize(
    "when",
    [
        # Explodes.
        "[1,2,3,4,5,6,7,8,9,10].all(a," * 5 + "a > 0" + ")" * 5,
        # Misses its field, or compares it with another type.
        "message.body.amount > 100.0 && message.body.discount > 0.5",
        "message.body.amount > 'much'",
    ],
)
def test_a_rule_that_cannot_be_evaluated_is_skipped_or_keeps_a_dead_letter(
    server: Served, when: str
) -> None:
    skipping, burying, target = (server.queue() for _ in range(3))
    for queue, on_error in ((skipping, "skip"), (burying, "dead")):
        rule = {"queue": queue, "when": when, "do": [{"route": target}], "on_error": on_error}
        assert server.put(f"/v1/rules/{queue}", rule).status == 200
    bodies = {queue: server.publish(queue, {"amount": 500.0}) for queue in (skipping, burying)}
    assert server.claim_one(skipping)["id"] == bodies[skipping]
    shown = server.message(bodies[burying])
    missing = "discount" in when
    assert shown["state"] == ("ready" if missing else "dead")
    covered = server.get("/v1/rules/coverage").json["rules"]
    (counts,) = [each for each in covered if each["name"] == skipping]
    assert (counts["missing_field"], counts["errors"]) == ((1, 0) if missing else (0, 1))


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"properties": {"a": {"$ref": "http://127.0.0.1/x"}}}, "at /properties/a/$ref"),
        ({"properties": {"a": {"pattern": "(a+)+\\1"}}}, "at /properties/a/pattern"),
        ({"enum": ["x" * 1_000] * 10_000}, "at most 262,144"),
        (
            {
                "$defs": {
                    f"d{n}": {
                        "anyOf": [{"$ref": f"#/$defs/d{min(n + 1, 12)}"}] * 4 if n < 12 else []
                    }
                    for n in range(13)
                },
                "$ref": "#/$defs/d0",
            },
            "again and again",
        ),
    ],
    ids=["remote", "backtracking", "10 MB", "exponential"],
)
def test_a_schema_that_may_do_harm_is_refused_with_its_place(
    server: Served, schema: Any, problem: str
) -> None:
    name = server.queue()
    refused = server.post(f"/v1/schemas/{name}", {"schema": schema})
    assert (refused.status, refused.code) == (422, "INVALID_INPUT")
    assert problem in refused.json["error"]["message"]
    assert server.get(f"/v1/schemas/{name}").status == 404


def test_a_deep_body_that_fits_no_alternative_is_refused_at_once(server: Served) -> None:
    queue = server.queue()
    assert server.post(f"/v1/schemas/{queue}", {"schema": NESTED}).status == 201
    assert server.put(f"/v1/queues/{queue}/schemas", {"schema": queue}).status == 200
    body: dict[str, Any] = {}
    for _ in range(300):
        body = {"a": body, "x": 1}
    refused = server.post("/v1/publish", {"queue": queue, "body": body})
    assert (refused.status, refused.code) == (422, "SCHEMA_MISMATCH")
    assert server.post("/v1/publish", {"queue": queue, "body": {"x": 1}}).status == 201


def test_a_topology_with_a_mistake_applies_nothing(server: Served) -> None:
    name = server.queue()
    first = f'name = "{name}"\n[[queue]]\nname = "{name}-1"\n'
    mistakes = {
        f'[[queue]]\nname = "{name}-2"\nmax_atempts = 3\n': "(line 4): 'max_atempts' is unknown",
        "[[queu]]\n": "'queu' (line 4) is unknown; did you mean 'queue'?",
        "[[queue]\n": "line 4, column 8",
        f'[[rule]]\nname = "r"\nqueue = "{name}-1"\nwhen = "message.x"\n'
        "do = [{delay = 1}]\n": "(line 4): when: line 1, column 8",
    }
    for text, problem in mistakes.items():
        refused = server.put("/v1/topology", {"toml": first + text})
        assert (refused.status, problem in refused.json["error"]["message"]) == (422, True), refused
    newer = server.put("/v1/topology", {"toml": first.replace("\n", "\nformat = 99\n", 1)})
    assert "format is 99; this version" in newer.json["error"]["message"]
    assert server.get(f"/v1/queues/{name}-1").status == 404


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '[[rule]]\nname = "r"\nqueue = "{name}-1"\n'
            'do = [{{callback = "http://127.0.0.1/x"}}]\n',
            "(line 5): callback: the address is not public",
        ),
        (
            '[[schedule]]\nname = "s"\nqueue = "{name}-1"\ncron = "0 3 * * *"\n'
            'callback = "http://169.254.169.254/x"\n',
            "(line 5): callback: the address is not public",
        ),
        (
            '[[alert]]\nname = "a"\nurl = "http://localhost/x"\n',
            "(line 5): url: localhost is a local host name",
        ),
        (
            '[[schedule]]\nname = "s"\nqueue = "{name}-1"\ncron = "0 3 * * *"\ntype = "{shell}"\n'
            'body = {{command = "id"}}\n',
            "(line 5): shell jobs are not accepted over HTTP",
        ),
        (
            '[[rule]]\nname = "r"\nqueue = "{name}-1"\n'
            'do = [{{set = {{type = "{shell}"}}}}, {{route = "{name}-1"}}]\n',
            "a server must be started with --allow-shell",
        ),
    ],
    ids=["callback of a rule", "callback of a schedule", "alert", "shell job", "shell rule"],
)
def test_a_topology_gives_a_caller_nothing_that_its_own_route_refuses(
    server: Served, text: str, problem: str
) -> None:
    name = server.queue()
    first = f'name = "{name}"\n[[queue]]\nname = "{name}-1"\nshell = true\n'
    refused = server.put("/v1/topology", {"toml": first + text.format(name=name, shell=SHELL_TYPE)})
    assert (refused.status, problem in refused.json["error"]["message"]) == (422, True), refused
    assert server.get(f"/v1/queues/{name}-1").status == 404


def test_a_rule_over_http_makes_no_shell_jobs_unless_the_server_accepts_them(
    server: Served,
) -> None:
    queue, target = server.queue(), server.queue(shell=True)
    actions = [{"set": {"type": SHELL_TYPE}}, {"route": target}]
    refused = server.put(f"/v1/rules/{queue}", {"queue": queue, "do": actions})
    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    assert "a server must be started with --allow-shell" in refused.json["error"]["message"]


def test_of_topologies_applied_at_once_each_is_whole_or_refused(server: Served) -> None:
    name = server.queue()
    files = [
        f'name = "{name}"\n'
        + "".join(
            f'[[queue]]\nname = "{name}-{number}"\nmax_attempts = {attempts}\n'
            for number in range(20)
        )
        for attempts in range(1, 5)
    ]
    calls = [Later(server.put, "/v1/topology", {"toml": text}) for text in files]
    replies = [call.result() for call in calls]
    assert {reply.status for reply in replies} <= {200, 409}
    assert any(reply.status == 200 for reply in replies)
    settings = [
        server.get(f"/v1/queues/{name}-{number}").json["settings"]["max_attempts"]
        for number in range(20)
    ]
    assert len(set(settings)) == 1


def test_a_filter_with_a_mistake_is_refused_with_its_place(server: Served) -> None:
    queue = server.queue(kind="broadcast")
    path = f"/v1/queues/{queue}/subscriptions/s"
    for text, problem in {
        "typ:x": "unknown field 'typ' at 1; did you mean 'type'?",
        "(type:x": "'(' is never closed at 1",
        "state:dead": "state is not known when a message is published",
    }.items():
        refused = server.put(path, {"filter": text})
        assert (refused.status, problem in refused.json["error"]["message"]) == (422, True)
    assert server.get(path).status == 404


def test_subscribers_that_match_nothing_or_never_come_leave_publishes_alone(
    server: Served,
) -> None:
    queue = server.queue(kind="broadcast")
    path = f"/v1/queues/{queue}/subscriptions"
    assert server.put(f"{path}/none", {"filter": "type:never"}).status == 200
    away = {"settings": {"max_depth": 2}, "ttl": 60}
    assert server.put(f"{path}/away", away).status == 200
    for number in range(4):
        server.publish(queue, number)
    assert server.claim(f"{queue}/none") == []
    waiting = server.get("/v1/messages", queue=f"{queue}/away").json["messages"]
    states = sorted(each["state"] for each in waiting)
    assert states == ["dead", "dead", "ready", "ready"], json.dumps(waiting)
    assert {each.get("reason") for each in waiting if each["state"] == "dead"} == {"overflow"}
