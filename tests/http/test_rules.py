"""Routing rules over HTTP: ScaiQueue's cases, and mistakes with their place."""

import pytest

from penstock.client import Client
from penstock.errors import InvalidInput
from penstock.model.message import Draft
from penstock.model.routing import Action, Rule, Trigger
from penstock.rules.rule_checks import parse_rule
from tests.http.served import Served

pytestmark = pytest.mark.anyio


def test_a_premium_order_is_in_the_queue_for_premium_orders_only(server: Served) -> None:
    orders, premium = server.queue(), server.queue()
    rule = {
        "queue": orders,
        "when": "message.labels.customer_tier == 'premium'",
        "do": [{"route": premium}],
    }
    saved = server.ask("PUT", f"/v1/rules/{orders}", rule)
    assert (saved.status, saved.json["version"]) == (200, 1)
    message = {"queue": orders, "labels": {"customer_tier": "premium"}, "correlation_id": "c"}
    published = server.post("/v1/publish", message).json
    assert published["routed"] == [premium]
    (taken,) = server.post("/v1/claim", {"queues": [{"queue": premium}]}).json["messages"]
    assert (taken["id"], taken["correlation_id"]) == (published["id"], "c")
    assert taken["causation_id"] == f"rule:{orders}@1"
    assert server.post("/v1/claim", {"queues": [{"queue": orders}]}).json["messages"] == []


def test_a_rule_with_a_mistake_is_refused_with_its_place(server: Served) -> None:
    rule = {"when": "message.priority == 'x'", "do": [{"set": {"priority": 1}}]}
    refused = server.ask("PUT", "/v1/rules/bad", rule)
    assert refused.status == 422
    assert "when: line 1, column 18: found no matching overload" in refused.json["error"]["message"]
    inside = {"do": [{"callback": "http://169.254.169.254/latest"}]}
    refused = server.ask("PUT", "/v1/rules/bad", inside)
    assert "callback: the address is not public" in refused.json["error"]["message"]
    missing = server.ask("PUT", "/v1/rules/bad", {"do": [{"route": "nowhere"}]})
    assert missing.status == 404
    assert server.get("/v1/rules/bad").status == 404


async def test_the_client_manages_rules_as_a_broker_does(server: Served) -> None:
    async with Client(f"http://127.0.0.1:{server.port}") as client:
        await manage_rules(server, client)


async def manage_rules(server: Served, client: Client) -> None:
    queue, target = server.queue(), server.queue()
    rule = parse_rule({"name": queue, "queue": queue, "do": [{"route": target}]})
    saved = await client.rules.save(rule)
    assert (saved.rule, saved.version) == (rule, 1)
    assert await client.rules.get(queue) == saved
    assert saved in await client.rules.list_rules()
    assert [each.version for each in await client.rules.versions(queue)] == [1]
    published = await client.publish(Draft(queue=queue))
    assert published.routed == (target,)
    (outcome,) = await client.publish_many([Draft(queue=queue)])
    assert outcome.routed == (target,)
    assert (await client.rules.enable(queue, enabled=False)).rule.enabled is False
    await client.publish(Draft(queue=queue))
    tested = await client.rules.test(rule, last=10)
    assert (tested.tried, tested.matched) == (1, 1)
    with pytest.raises(InvalidInput, match="needs an action"):
        await client.rules.save(make_unfit_rule(queue))
    covered = {each.name: each for each in await client.rules.coverage()}
    assert covered[queue].enabled is False
    await client.rules.delete(queue)
    assert saved not in await client.rules.list_rules()


def make_unfit_rule(queue: str) -> Rule:
    return Rule(name=queue, queue=queue, on=Trigger.DEAD, do=(Action(archive=True),))


def test_three_subscriptions_each_get_a_copy(server: Served) -> None:
    queue = server.queue(consumer_mode="broadcast")
    path = f"/v1/queues/{queue}/subscriptions"
    for name in "abc":
        saved = server.ask("PUT", f"{path}/{name}", {"filter": "type:order.*"})
        assert (saved.status, saved.json["queue"]) == (200, f"{queue}/{name}")
    message = {"queue": queue, "type": "order.new", "body": {"n": 1}}
    parent = server.post("/v1/publish", message).json["id"]
    for name in "abc":
        claim = {"queues": [{"queue": f"{queue}/{name}"}]}
        (child,) = server.post("/v1/claim", claim).json["messages"]
        assert (child["parent_id"], child["body"]) == (parent, {"n": 1})
    assert len(server.get(path).json["subscriptions"]) == 3
    assert server.ask("DELETE", f"{path}/a").json == {"cancelled": 0}
    refused = server.ask("PUT", f"{path}/d", {"filter": "state:dead"})
    assert refused.status == 422


async def test_the_client_manages_durable_subscriptions(server: Served) -> None:
    queue = server.queue(kind="broadcast")
    async with Client(f"http://127.0.0.1:{server.port}") as client:
        made = await client.broadcasts.subscribe(queue, "a", ttl=60, max_attempts=2)
        assert await client.broadcasts.get(queue, "a") == made
        assert await client.broadcasts.list_subscriptions(queue) == [made]
        await client.publish(Draft(queue=queue))
        assert await client.broadcasts.unsubscribe(queue, "a") == 1
