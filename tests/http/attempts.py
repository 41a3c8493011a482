"""How each route is called about a thing in a place, and by whom it may be."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from penstock.broker.views import SavedView, SavedViews
from penstock.http.auth.principal import OWNER
from penstock.model.queue import DEAD_LETTER
from penstock.rules.access import Right
from tests.http.authorization import (
    AWAY,
    DENIED,
    HOME,
    PLACES,
    Ask,
    Place,
    Who,
    World,
)

Make = Callable[[World, Place, Who], Awaitable[Ask]]
Rule = Callable[[Who, Place], bool]


class Attempt(NamedTuple):
    """How a route is called about a thing in a place."""

    make: Make
    places: tuple[Place, ...] = PLACES
    # What it takes beside the right that the route declares, or instead of it.
    also: Right | None = None
    rule: Rule | None = None
    # It is allowed by the right alone, and shows nothing of places where the caller may not look.
    shows: bool = False
    # Where the caller may look, if not where it has the right.
    sees: Rule | None = None
    # Callers who may are told that it is not there.
    absent: bool = False


def on_queue(suffix: str = "", body: Any = None, **more: Any) -> Attempt:
    async def make(world: World, place: Place, who: Who) -> Ask:
        return Ask(f"/v1/queues/{await world.queue(place)}{suffix}", body, place.scope)

    return Attempt(make, **more)


def on_message(suffix: str = "", body: Any = None, *, dead: bool = False) -> Attempt:
    async def make(world: World, place: Place, who: Who) -> Ask:
        return Ask(f"/v1/messages/{await world.message(place, dead=dead)}{suffix}", body)

    return Attempt(make)


def on_lock(path: str, *, from_dead: bool = False, many: bool = False, **fields: Any) -> Attempt:
    async def make(world: World, place: Place, who: Who) -> Ask:
        item = {"token": await world.lock_token(place, who, from_dead=from_dead), **fields}
        return Ask(path, {"items": [item]} if many else item)

    return Attempt(make)


# It applies to no queue of the world.
RULE = {"queue": "nothing", "do": [{"set": {"priority": 1}}]}


def make_fixed(path: str, body: Any = None, **more: Any) -> Attempt:
    """About nothing in particular."""

    async def make(world: World, place: Place, who: Who) -> Ask:
        return Ask(path, body)

    return Attempt(make, **{"places": (HOME,), **more})


def make_list(path: str) -> Attempt:
    """In the scope of the place, after something was put into every place."""

    async def make(world: World, place: Place, who: Who) -> Ask:
        return Ask(path, scope=place.scope)

    return Attempt(make, places=(HOME, AWAY), shows=True)


def on(
    prepare: Callable[[World, Place], Awaitable[Any]],
    path: str,
    body: Any = None,
    also: Right | None = None,
) -> Attempt:
    """What `prepare` gives is put into the path."""

    async def make(world: World, place: Place, who: Who) -> Ask:
        made = await prepare(world, place)
        words = made if isinstance(made, tuple) else (made,)
        return Ask(path.format(*words, scope=place.scope), body, place.scope)

    return Attempt(make, also=also)


def in_scope(
    prepare: Callable[[World, Place], Awaitable[Any]], path: str, body: Any = None
) -> Attempt:
    """A scope of the caller's own tenant."""
    return on(prepare, path, body)._replace(places=(HOME, AWAY, DENIED))


async def upload(world: World, place: Place, who: Who) -> Ask:
    return Ask(f"/v1/artifacts/{await world.lock_token(place, who)}/report.txt", b"x")


async def publish(world: World, place: Place, who: Who) -> Ask:
    return Ask("/v1/publish", {"queue": await world.queue(place)}, place.scope)


async def publish_many(world: World, place: Place, who: Who) -> Ask:
    sent = {"messages": [{"queue": await world.queue(place)}]}
    return Ask("/v1/publish/batch", sent, place.scope)


async def claim(world: World, place: Place, who: Who) -> Ask:
    return Ask("/v1/claim", {"queues": [{"queue": await world.queue(place)}]}, place.scope)


async def ask_seen(world: World, place: Place, who: Who) -> Ask:
    return Ask("/v1/seen", {"queue": await world.queue(place), "key": "k"}, place.scope)


async def claim_dead(world: World, place: Place, who: Who) -> Ask:
    await world.message(place, dead=True)
    return Ask("/v1/claim", {"queues": [{"queue": DEAD_LETTER}], "limit": 1000}, place.scope)


async def move(world: World, place: Place, who: Who) -> Ask:
    id, queue = await world.message(place), await world.queue(place)
    return Ask(f"/v1/messages/{id}/move", {"queue": queue, "to_scope": place.scope}, place.scope)


async def start_bulk(world: World, place: Place, who: Who) -> Ask:
    await world.message(place)
    sent = {"verb": "cancel", "filter": "state:ready,dead", "dry_run": True}
    return Ask("/v1/bulk", sent, place.scope)


async def redrive(world: World, place: Place, who: Who) -> Ask:
    return Ask("/v1/redrive", {"ids": [str(await world.message(place, dead=True))]}, place.scope)


async def subscribe(world: World, place: Place, who: Who) -> Ask:
    sent = {"url": "https://example.org/", "queues": [await world.queue(place)]}
    return Ask("/v1/subscriptions", sent, place.scope)


async def create_alert(world: World, place: Place, who: Who) -> Ask:
    sent = {"name": f"alert-{next(world.numbers)}", "url": "https://example.org/"}
    return Ask("/v1/alerts", sent, place.scope)


async def create_human_webhook(world: World, place: Place, who: Who) -> Ask:
    sent = {"name": f"webhook-{next(world.numbers)}", "url": "https://example.org/"}
    return Ask("/v1/human-webhooks", sent, place.scope)


async def delete_human_webhook(world: World, place: Place, who: Who) -> Ask:
    name = f"webhook-{next(world.numbers)}"
    webhooks = world.broker(place).inbox.webhooks
    await webhooks.add(name, "https://example.org/", scope=place.scope)
    return Ask(f"/v1/human-webhooks/{name}", None, place.scope)


async def save_view(world: World, place: Place, who: Who) -> Ask:
    return Ask(f"/v1/views/view-{next(world.numbers)}", {"filter": "state:dead"}, place.scope)


async def delete_view(world: World, place: Place, who: Who) -> Ask:
    name = f"view-{next(world.numbers)}"
    views = SavedViews(world.store, world.broker(place).admin)
    await views.save(SavedView(name, "state:dead"), scope=place.scope)
    return Ask(f"/v1/views/{name}", None, place.scope)


async def measure(world: World, place: Place, who: Who) -> Ask:
    return Ask(f"/v1/metrics/queues/{await world.queue(place)}", scope=place.scope)


def on_alert(suffix: str = "") -> Attempt:
    async def make(world: World, place: Place, who: Who) -> Ask:
        name = f"alert-{next(world.numbers)}"
        await world.broker(place).alerts.add(name, "https://example.org/", scope=place.scope)
        return Ask(f"/v1/alerts/{name}{suffix}", None, place.scope)

    return Attempt(make, (HOME, AWAY))


async def create_queue(world: World, place: Place, who: Who) -> Ask:
    return Ask("/v1/queues", {"name": f"{place.name}-{next(world.numbers)}"}, place.scope)


async def create_scope(world: World, place: Place, who: Who) -> Ask:
    return Ask("/v1/scopes", {"name": f"scope-{next(world.numbers)}"})


async def create_key(world: World, place: Place, who: Who) -> Ask:
    return Ask("/v1/keys", {"name": "k", "grants": ["access"], "scopes": [place.scope]})


async def delete_role(world: World, place: Place, who: Who) -> Ask:
    return Ask(f"/v1/roles/{await world.role(who.tenant)}")


async def save_trust(world: World, place: Place, who: Who) -> Ask:
    return Ask(f"/v1/trusts/{place.scope}/other", {"grants": ["-publish"]})


def owner_too(who: Who, place: Place) -> bool:
    """The owner of the store manages the keys of all tenants."""
    if place.tenant != who.tenant:
        return who.tenant == OWNER and who.everywhere(Right.ACCESS)
    return who.over(Right.ACCESS, place)


def knows_queue(who: Who, place: Place) -> bool:
    return any(who.at(right, place) for right in (Right.PUBLISH, Right.CONSUME, Right.READ))


def sees_workers(who: Who, place: Place) -> bool:
    return Right.CONSUME in who.rights or who.everywhere(Right.READ)


def is_let_in(who: Who, place: Place) -> bool:
    return bool(who.subject)


def by_right(right: Right) -> Rule:
    return lambda who, place: right in who.rights


async def request_decision(world: World, place: Place, who: Who) -> Ask:
    return Ask("/v1/inbox", {"spec": {"title": "Ship it?"}}, place.scope)


async def start_workflow(world: World, place: Place, who: Who) -> Ask:
    node = {"message": {"queue": await world.queue(place)}}
    return Ask("/v1/workflows", {"name": "w", "nodes": [node]}, place.scope)


def decides(who: Who, place: Place) -> bool:
    return who.at(Right.DECIDE, place)


def sees_people(who: Who, place: Place) -> bool:
    """The right to read all queues leaves out the steps of people."""
    return who.at(Right.READ, place) and decides(who, place)


def on_step(suffix: str = "", body: Any = None, rule: Rule = decides) -> Attempt:
    made = on(World.human_step, "/v1/inbox/{0}" + suffix, body)
    return made._replace(places=(HOME, AWAY), rule=rule)


def on_patterns(suffix: str = "", body: Any = None, rule: Rule | None = None) -> Attempt:
    made = on(World.human_pattern, "/v1/human-patterns" + suffix, body)
    return made._replace(places=(HOME, AWAY), rule=rule)


# Those that tell of one scope of the caller's own tenant.
OWN = (HOME, AWAY, DENIED)


async def sign_in(world: World, place: Place, who: Who) -> Ask:
    return Ask("/v1/session", {"key": who.token or "psk_0_wrong"})


ATTEMPTS: dict[str, tuple[Attempt, ...]] = {
    "GET /v1/scopes": (make_list("/v1/scopes"),),
    "POST /v1/scopes": (
        Attempt(create_scope, (AWAY,), rule=lambda who, _: who.everywhere(Right.MANAGE)),
    ),
    "POST /v1/scopes/{name}/pause": (
        Attempt(on(World.queue, "/v1/scopes/{scope}/pause").make, (HOME, AWAY)),
    ),
    "POST /v1/scopes/{name}/resume": (
        Attempt(on(World.queue, "/v1/scopes/{scope}/resume").make, (HOME, AWAY)),
    ),
    # A scope of which the caller sees nothing is not there.
    "GET /v1/queues": (
        make_list("/v1/queues")._replace(rule=lambda who, place: who.at(Right.READ, place)),
    ),
    "POST /v1/queues": (Attempt(create_queue, OWN),),
    "GET /v1/queues/{queue}": (on_queue(rule=knows_queue),),
    "PATCH /v1/queues/{queue}": (on_queue("", {"settings": {"lease": 60}}),),
    "POST /v1/queues/{queue}/pause": (on_queue("/pause"),),
    "POST /v1/queues/{queue}/resume": (on_queue("/resume"),),
    "POST /v1/queues/{queue}/drain": (on_queue("/drain"),),
    "POST /v1/queues/{queue}/archive": (on_queue("/archive"),),
    "POST /v1/queues/{queue}/rename": (
        on_queue("/rename", {"name": "payroll-new"}, places=(DENIED,)),
    ),
    "POST /v1/queues/{queue}/purge": (on_queue("/purge", {"places": ["ready"]}),),
    "POST /v1/queues/{queue}/prune": (on_queue("/prune", {"limit": 1}),),
    "DELETE /v1/queues/{queue}": (on_queue(),),
    "POST /v1/redrive": (Attempt(redrive),),
    "POST /v1/bulk": (Attempt(start_bulk, places=(HOME, AWAY), shows=True),),
    "GET /v1/bulk": (make_list("/v1/bulk"),),
    "GET /v1/bulk/{id}": (in_scope(World.bulk_action, "/v1/bulk/{0}"),),
    "POST /v1/bulk/{id}/pause": (in_scope(World.bulk_action, "/v1/bulk/{0}/pause", {}),),
    "POST /v1/bulk/{id}/resume": (in_scope(World.bulk_action, "/v1/bulk/{0}/resume", {}),),
    "POST /v1/bulk/{id}/abort": (in_scope(World.bulk_action, "/v1/bulk/{0}/abort", {}),),
    "POST /v1/messages/{reference:path}/move": (Attempt(move, also=Right.PUBLISH),),
    "POST /v1/messages/{reference:path}/edit": (on_message("/edit", {"body": 1}),),
    "POST /v1/messages/{reference:path}/reprioritise": (
        on_message("/reprioritise", {"priority": 1}),
    ),
    "GET /v1/queues/{queue}/export": (on_queue("/export"),),
    "POST /v1/queues/{queue}/import": (on_queue("/import", b'{"body": 1}\n'),),
    "PUT /v1/artifacts/{token}/{name:path}": (Attempt(upload),),
    "GET /v1/messages/{reference:path}/artifacts": (on_message("/artifacts"),),
    "GET /v1/messages/{reference:path}/artifacts/{name}": (
        on_message("/artifacts/x")._replace(places=OWN, absent=True),
    ),
    "GET /v1/messages/{reference:path}/callbacks": (on_message("/callbacks"),),
    "GET /v1/callbacks/secret": (make_fixed("/v1/callbacks/secret"),),
    "POST /v1/callbacks/secret/rotate": (make_fixed("/v1/callbacks/secret/rotate"),),
    "GET /v1/messages": (make_list("/v1/messages"),),
    "GET /v1/messages/count": (make_list("/v1/messages/count"),),
    "POST /v1/messages/{reference:path}/cancel": (on_message("/cancel", {}),),
    "POST /v1/messages/{reference:path}/redrive": (on_message("/redrive", {}, dead=True),),
    "POST /v1/messages/{reference:path}/purge": (on_message("/purge", dead=True),),
    "GET /v1/messages/{reference:path}/result": (on_message("/result"),),
    "GET /v1/audit/verify": (make_fixed("/v1/audit/verify"),),
    "GET /v1/audit/seal": (make_fixed("/v1/audit/seal"),),
    "GET /v1/messages/{reference:path}/explain": (on_message("/explain"),),
    "GET /v1/messages/{reference:path}": (on_message(),),
    "GET /v1/schedules": (make_list("/v1/schedules"),),
    "PUT /v1/queues/{queue}/schedules/{name}": (
        on_queue("/schedules/s", {"cron": "0 0 1 1 *"}, also=Right.PUBLISH),
    ),
    "POST /v1/queues/{queue}/schedules/{name}/pause": (
        on(World.schedule, "/v1/queues/{0}/schedules/{1}/pause"),
    ),
    "POST /v1/queues/{queue}/schedules/{name}/resume": (
        on(World.schedule, "/v1/queues/{0}/schedules/{1}/resume", also=Right.PUBLISH),
    ),
    "POST /v1/queues/{queue}/schedules/{name}/run": (
        on(World.schedule, "/v1/queues/{0}/schedules/{1}/run"),
    ),
    "DELETE /v1/queues/{queue}/schedules/{name}": (
        on(World.schedule, "/v1/queues/{0}/schedules/{1}"),
    ),
    "GET /v1/rules": (in_scope(World.rule, "/v1/rules"),),
    "GET /v1/rules/coverage": (in_scope(World.rule, "/v1/rules/coverage"),),
    "POST /v1/rules/test": (in_scope(World.rule, "/v1/rules/test", {"rule": RULE}),),
    "GET /v1/rules/{name}": (in_scope(World.rule, "/v1/rules/{0}"),),
    "GET /v1/rules/{name}/versions": (in_scope(World.rule, "/v1/rules/{0}/versions"),),
    "PUT /v1/rules/{name}": (in_scope(World.rule, "/v1/rules/{0}", RULE),),
    "POST /v1/rules/{name}/enable": (in_scope(World.rule, "/v1/rules/{0}/enable"),),
    "POST /v1/rules/{name}/disable": (in_scope(World.rule, "/v1/rules/{0}/disable"),),
    "DELETE /v1/rules/{name}": (in_scope(World.rule, "/v1/rules/{0}"),),
    "GET /v1/scopes/{name}": (in_scope(World.queue, "/v1/scopes/{scope}"),),
    "PUT /v1/scopes/{name}": (in_scope(World.queue, "/v1/scopes/{scope}", {"description": "x"}),),
    "POST /v1/scopes/{name}/archive": (in_scope(World.queue, "/v1/scopes/{scope}/archive"),),
    "POST /v1/scopes/{name}/unarchive": (in_scope(World.queue, "/v1/scopes/{scope}/unarchive"),),
    "PUT /v1/queues/{queue}": (in_scope(World.queue, "/v1/queues/{0}", {}),),
    "GET /v1/topology": (make_fixed("/v1/topology"),),
    "PUT /v1/topology": (make_fixed("/v1/topology", {"topology": {"name": "empty"}}),),
    "GET /v1/schemas": (in_scope(World.schema, "/v1/schemas"),),
    "GET /v1/schemas/{name}": (in_scope(World.schema, "/v1/schemas/{0}"),),
    "POST /v1/schemas/{name}": (
        in_scope(World.schema, "/v1/schemas/{0}", {"schema": {"type": "object"}}),
    ),
    "POST /v1/schemas/{name}/check": (
        in_scope(World.unbound_schema, "/v1/schemas/new/check", {"schema": {}}),
    ),
    "DELETE /v1/schemas/{name}": (in_scope(World.unbound_schema, "/v1/schemas/{0}"),),
    "GET /v1/bindings": (make_list("/v1/bindings"),),
    "PUT /v1/queues/{queue}/schemas": (
        on(World.bindable_queue, "/v1/queues/{0}/schemas", {"schema": "order"}),
    ),
    "DELETE /v1/queues/{queue}/schemas": (on(World.binding, "/v1/queues/{0}/schemas"),),
    "GET /v1/queues/{queue}/schemas/draft": (on_queue("/schemas/draft"),),
    "GET /v1/queues/{queue}/subscriptions": (
        on(World.durable_subscription, "/v1/queues/{0}/subscriptions"),
    ),
    "GET /v1/queues/{queue}/subscriptions/{name}": (
        on(World.durable_subscription, "/v1/queues/{0}/subscriptions/{1}"),
    ),
    "PUT /v1/queues/{queue}/subscriptions/{name}": (
        on(World.durable_subscription, "/v1/queues/{0}/subscriptions/new", {}),
    ),
    "DELETE /v1/queues/{queue}/subscriptions/{name}": (
        on(World.durable_subscription, "/v1/queues/{0}/subscriptions/{1}"),
    ),
    "GET /v1/subscriptions": (make_list("/v1/subscriptions"),),
    "POST /v1/subscriptions": (Attempt(subscribe),),
    "POST /v1/subscriptions/{id}/heartbeat": (
        on(World.subscription, "/v1/subscriptions/{0}/heartbeat"),
    ),
    "DELETE /v1/subscriptions/{id}": (on(World.subscription, "/v1/subscriptions/{0}"),),
    "GET /v1/messages/{reference:path}/steps": (on_message("/steps"),),
    "POST /v1/messages/{reference:path}/signals/{name}": (on_message("/signals/go", {"body": 1}),),
    "POST /v1/signals/{token}": (
        on(World.callback_token, "/v1/signals/{0}", b"1")._replace(rule=lambda who, place: True),
    ),
    "GET /v1/workflows": (make_list("/v1/workflows"),),
    "POST /v1/workflows": (Attempt(start_workflow),),
    "GET /v1/workflows/{id}": (on(World.workflow, "/v1/workflows/{0}"),),
    "POST /v1/workflows/{id}/cancel": (on(World.workflow, "/v1/workflows/{0}/cancel"),),
    "POST /v1/workflows/{id}/redrive": (on(World.ended_workflow, "/v1/workflows/{0}/redrive"),),
    "GET /v1/inbox": (make_fixed("/v1/inbox", rule=is_let_in),),
    "POST /v1/inbox": (Attempt(request_decision, (HOME, AWAY)),),
    "GET /v1/inbox/statistics": (make_fixed("/v1/inbox/statistics", rule=sees_people),),
    "GET /v1/inbox/{id}": (on_step(),),
    "POST /v1/inbox/{id}/decide": (on_step("/decide", {"choice": "approve"}),),
    "POST /v1/inbox/{id}/claim": (on_step("/claim"),),
    "POST /v1/inbox/{id}/release": (on_step("/release"),),
    "POST /v1/inbox/{id}/delegate": (on_step("/delegate", {"to": "bob"}),),
    "POST /v1/inbox/{id}/comment": (on_step("/comment", {"text": "Why?"}),),
    "POST /v1/inbox/{id}/links": (
        on(World.human_step, "/v1/inbox/{0}/links", {"person": "ann"})._replace(
            places=(HOME, AWAY)
        ),
    ),
    "GET /v1/human-patterns": (on_patterns(rule=sees_people),),
    "GET /v1/human-patterns/{name}": (on_patterns("/{0}", rule=sees_people),),
    "PUT /v1/human-patterns/{name}": (on_patterns("/{0}", {"spec": {"title": "x"}}),),
    "DELETE /v1/human-patterns/{name}": (on_patterns("/{0}"),),
    "GET /v1/decide/{token}": (
        on(World.human_link, "/v1/decide/{0}")._replace(rule=lambda who, place: True),
    ),
    # Without the nonce of the page, nobody decides.
    "POST /v1/decide/{token}": (
        on(World.human_link, "/v1/decide/{0}", b"choice=approve")._replace(
            rule=lambda who, place: False
        ),
    ),
    "POST /v1/step": (on_lock("/v1/step", step={"name": "charge"}),),
    "POST /v1/wait": (on_lock("/v1/wait", holds=[{"kind": "moment", "delay": 60}]),),
    "POST /v1/run": (on_lock("/v1/run", include=["steps"]),),
    "POST /v1/run/callback": (
        on_lock("/v1/run/callback", name="paid", expires_at="2030-01-01T00:00:00Z"),
    ),
    "GET /v1/filter/complete": (make_fixed("/v1/filter/complete?text=queue:", shows=True),),
    "GET /v1/activity": (make_fixed("/v1/activity", shows=True),),
    "GET /v1/trace/{correlation_id:path}": (make_fixed("/v1/trace/c", shows=True),),
    "GET /v1/events": (make_fixed("/v1/events", shows=True),),
    "POST /v1/events/ticket": (make_fixed("/v1/events/ticket", shows=True),),
    "GET /health": (make_fixed("/health", rule=lambda who, place: True),),
    "GET /healthz": (make_fixed("/healthz", rule=lambda who, place: True),),
    "GET /openapi.json": (make_fixed("/openapi.json", rule=lambda who, place: True),),
    "GET /readyz": (make_fixed("/readyz", rule=lambda who, place: True),),
    "GET /version": (make_fixed("/version", rule=is_let_in),),
    "GET /metrics": (make_fixed("/metrics"),),
    "GET /v1/system-agents": (make_fixed("/v1/system-agents"),),
    "GET /v1/workers": (make_fixed("/v1/workers", rule=sees_workers),),
    "PUT /v1/workers/{id}": (
        make_fixed(
            "/v1/workers/w", {"host": "b", "pid": 1, "queues": []}, rule=by_right(Right.CONSUME)
        ),
    ),
    "DELETE /v1/workers/{id}": (make_fixed("/v1/workers/w", rule=by_right(Right.CONSUME)),),
    "POST /v1/workers/{id}/stop": (
        Attempt(on(World.worker, "/v1/workers/{0}/stop").make, (HOME,)),
    ),
    "GET /": (make_fixed("/", rule=lambda who, place: True),),
    "GET /docs": (make_fixed("/docs", rule=lambda who, place: True),),
    "GET /assets/{name}": (make_fixed("/assets/icon-v1.svg", rule=lambda who, place: True),),
    "GET /v1/session": (make_fixed("/v1/session", rule=lambda who, place: True),),
    "POST /v1/session": (Attempt(sign_in, (HOME,), rule=is_let_in),),
    "DELETE /v1/session": (make_fixed("/v1/session", rule=lambda who, place: True),),
    "GET /v1/overview": (make_list("/v1/overview"),),
    "GET /v1/overview/hour": (make_list("/v1/overview/hour"),),
    "GET /v1/views": (make_list("/v1/views")._replace(shows=False),),
    "PUT /v1/views/{name}": (Attempt(save_view, (HOME, AWAY)),),
    "DELETE /v1/views/{name}": (Attempt(delete_view, (HOME, AWAY)),),
    "GET /v1/failures": (make_list("/v1/failures"),),
    "GET /v1/failures/causes": (make_list("/v1/failures/causes"),),
    "GET /v1/changes": (make_fixed("/v1/changes", shows=True),),
    "GET /v1/stats": (make_list("/v1/stats"),),
    "GET /v1/autoscale": (make_list("/v1/autoscale"),),
    "POST /v1/keys": (Attempt(create_key, (HOME, AWAY)),),
    "GET /v1/keys": (make_fixed("/v1/keys", shows=True, sees=owner_too),),
    "POST /v1/keys/{id}/rotate": (
        on(World.key_id, "/v1/keys/{0}/rotate", {})._replace(rule=owner_too),
    ),
    "DELETE /v1/keys/{id}": (on(World.key_id, "/v1/keys/{0}")._replace(rule=owner_too),),
    "GET /v1/roles": (make_fixed("/v1/roles", rule=by_right(Right.ACCESS)),),
    "PUT /v1/roles/{name}": (make_fixed("/v1/roles/readers", {"grants": ["access"]}),),
    "DELETE /v1/roles/{name}": (Attempt(delete_role, (HOME,)),),
    "GET /v1/trusts": (make_fixed("/v1/trusts", shows=True),),
    "PUT /v1/trusts/{name}/{trusted}": (Attempt(save_trust, (HOME, AWAY)),),
    "DELETE /v1/trusts/{name}/{trusted}": (
        Attempt(on(World.trust, "/v1/trusts/{scope}/other").make, (HOME, AWAY)),
    ),
    "GET /v1/metrics/queues/{queue}": (Attempt(measure),),
    "GET /v1/metrics/consumers": (make_list("/v1/metrics/consumers"),),
    "GET /v1/anomalies": (make_list("/v1/anomalies"),),
    "GET /v1/pipeline/{kind}": (make_fixed("/v1/pipeline/metrics"),),
    "GET /v1/lake": (make_fixed("/v1/lake"),),
    "POST /v1/lake/run": (make_fixed("/v1/lake/run"),),
    "POST /v1/lake/backtest": (in_scope(World.rule, "/v1/lake/backtest", {"rule": RULE}),),
    "GET /v1/human-webhooks": (make_list("/v1/human-webhooks")._replace(shows=False),),
    "POST /v1/human-webhooks": (Attempt(create_human_webhook, (HOME, AWAY)),),
    "DELETE /v1/human-webhooks/{name}": (Attempt(delete_human_webhook, (HOME, AWAY)),),
    "GET /v1/alerts": (make_list("/v1/alerts")._replace(shows=False),),
    "POST /v1/alerts": (Attempt(create_alert, (HOME, AWAY)),),
    "GET /v1/alerts/{name}": (on_alert(),),
    "DELETE /v1/alerts/{name}": (on_alert(),),
    "POST /v1/alerts/{name}/test": (on_alert("/test"),),
    "GET /v1/audit": (make_fixed("/v1/audit", shows=True),),
    "POST /v1/publish": (Attempt(publish),),
    "POST /v1/publish/batch": (Attempt(publish_many),),
    "POST /v1/seen": (Attempt(ask_seen),),
    "POST /v1/claim": (
        Attempt(claim),
        Attempt(claim_dead, (HOME, DENIED), rule=lambda who, _: who.at(Right.CONSUME, HOME)),
    ),
}
SETTLING: dict[str, dict[str, Any]] = {"fail": {"error": "no"}, "extend": {"lease": 60}}
for verb in ("complete", "fail", "nack", "reject", "release", "park", "cancel", "extend", "begin",
             "progress"):  # fmt: skip
    for path, many in ((f"/v1/{verb}", False), (f"/v1/{verb}/batch", True)):
        ATTEMPTS[f"POST {path}"] = tuple(
            on_lock(path, from_dead=from_dead, many=many, **SETTLING.get(verb, {}))
            for from_dead in (False, True)
        )
