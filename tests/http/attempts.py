"""How each route is called about a thing in a place, and by whom it may be."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

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


def fixed(path: str, body: Any = None, **more: Any) -> Attempt:
    """About nothing in particular."""

    async def make(world: World, place: Place, who: Who) -> Ask:
        return Ask(path, body)

    return Attempt(make, **{"places": (HOME,), **more})


def listed(path: str) -> Attempt:
    """In the scope of the place, after something was put into every place."""

    async def make(world: World, place: Place, who: Who) -> Ask:
        return Ask(path, scope=place.scope)

    return Attempt(make, places=(HOME, AWAY), shows=True)


def on(prepare: Callable[[World, Place], Awaitable[Any]], path: str, body: Any = None) -> Attempt:
    """What `prepare` gives is put into the path."""

    async def make(world: World, place: Place, who: Who) -> Ask:
        made = await prepare(world, place)
        words = made if isinstance(made, tuple) else (made,)
        return Ask(path.format(*words, scope=place.scope), body, place.scope)

    return Attempt(make)


async def upload(world: World, place: Place, who: Who) -> Ask:
    return Ask(f"/v1/artifacts/{await world.lock_token(place, who)}/report.txt", b"x")


async def publish(world: World, place: Place, who: Who) -> Ask:
    return Ask("/v1/publish", {"queue": await world.queue(place)}, place.scope)


async def publish_many(world: World, place: Place, who: Who) -> Ask:
    sent = {"messages": [{"queue": await world.queue(place)}]}
    return Ask("/v1/publish/batch", sent, place.scope)


async def claim(world: World, place: Place, who: Who) -> Ask:
    return Ask("/v1/claim", {"queues": [{"queue": await world.queue(place)}]}, place.scope)


async def claim_dead(world: World, place: Place, who: Who) -> Ask:
    await world.message(place, dead=True)
    return Ask("/v1/claim", {"queues": [{"queue": DEAD_LETTER}], "limit": 1000}, place.scope)


async def redrive(world: World, place: Place, who: Who) -> Ask:
    return Ask("/v1/redrive", {"ids": [str(await world.message(place, dead=True))]}, place.scope)


async def subscribe(world: World, place: Place, who: Who) -> Ask:
    sent = {"url": "https://example.org/", "queues": [await world.queue(place)]}
    return Ask("/v1/subscriptions", sent, place.scope)


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


# Those that tell of one scope of the caller's own tenant.
OWN = (HOME, AWAY, DENIED)
ATTEMPTS: dict[str, tuple[Attempt, ...]] = {
    "GET /v1/scopes": (listed("/v1/scopes"),),
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
        listed("/v1/queues")._replace(rule=lambda who, place: who.at(Right.READ, place)),
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
    "GET /v1/queues/{queue}/export": (on_queue("/export"),),
    "POST /v1/queues/{queue}/import": (on_queue("/import", b'{"body": 1}\n'),),
    "PUT /v1/artifacts/{token}/{name:path}": (Attempt(upload),),
    "GET /v1/messages/{reference:path}/artifacts": (on_message("/artifacts"),),
    "GET /v1/messages/{reference:path}/artifacts/{name}": (
        on_message("/artifacts/x")._replace(places=OWN, absent=True),
    ),
    "GET /v1/messages/{reference:path}/callbacks": (on_message("/callbacks"),),
    "GET /v1/callbacks/secret": (fixed("/v1/callbacks/secret"),),
    "POST /v1/callbacks/secret/rotate": (fixed("/v1/callbacks/secret/rotate"),),
    "GET /v1/messages": (listed("/v1/messages"),),
    "POST /v1/messages/{reference:path}/cancel": (on_message("/cancel", {}),),
    "POST /v1/messages/{reference:path}/redrive": (on_message("/redrive", {}, dead=True),),
    "POST /v1/messages/{reference:path}/purge": (on_message("/purge", dead=True),),
    "GET /v1/messages/{reference:path}/result": (on_message("/result"),),
    "GET /v1/audit/verify": (fixed("/v1/audit/verify"),),
    "GET /v1/audit/seal": (fixed("/v1/audit/seal"),),
    "GET /v1/messages/{reference:path}/explain": (on_message("/explain"),),
    "GET /v1/messages/{reference:path}": (on_message(),),
    "GET /v1/schedules": (listed("/v1/schedules"),),
    "PUT /v1/queues/{queue}/schedules/{name}": (
        on_queue("/schedules/s", {"cron": "0 0 1 1 *"}, also=Right.PUBLISH),
    ),
    "DELETE /v1/queues/{queue}/schedules/{name}": (
        on(World.schedule, "/v1/queues/{0}/schedules/{1}"),
    ),
    "GET /v1/subscriptions": (listed("/v1/subscriptions"),),
    "POST /v1/subscriptions": (Attempt(subscribe),),
    "POST /v1/subscriptions/{id}/heartbeat": (
        on(World.subscription, "/v1/subscriptions/{0}/heartbeat"),
    ),
    "DELETE /v1/subscriptions/{id}": (on(World.subscription, "/v1/subscriptions/{0}"),),
    "GET /v1/events": (fixed("/v1/events", shows=True),),
    "POST /v1/events/ticket": (fixed("/v1/events/ticket", shows=True),),
    "GET /health": (fixed("/health", rule=lambda who, place: True),),
    "GET /healthz": (fixed("/healthz", rule=lambda who, place: True),),
    "GET /openapi.json": (fixed("/openapi.json", rule=lambda who, place: True),),
    "GET /readyz": (fixed("/readyz", rule=lambda who, place: True),),
    "GET /version": (fixed("/version", rule=is_let_in),),
    "GET /metrics": (fixed("/metrics"),),
    "GET /v1/system-agents": (fixed("/v1/system-agents"),),
    "GET /v1/workers": (fixed("/v1/workers", rule=sees_workers),),
    "PUT /v1/workers/{id}": (
        fixed("/v1/workers/w", {"host": "b", "pid": 1, "queues": []}, rule=by_right(Right.CONSUME)),
    ),
    "DELETE /v1/workers/{id}": (fixed("/v1/workers/w", rule=by_right(Right.CONSUME)),),
    "POST /v1/workers/{id}/stop": (
        Attempt(on(World.worker, "/v1/workers/{0}/stop").make, (HOME,)),
    ),
    "GET /": (listed("/"),),
    "GET /v1/stats": (listed("/v1/stats"),),
    "GET /v1/autoscale": (listed("/v1/autoscale"),),
    "POST /v1/keys": (Attempt(create_key, (HOME, AWAY)),),
    "GET /v1/keys": (fixed("/v1/keys", shows=True, sees=owner_too),),
    "POST /v1/keys/{id}/rotate": (
        on(World.key_id, "/v1/keys/{0}/rotate", {})._replace(rule=owner_too),
    ),
    "DELETE /v1/keys/{id}": (on(World.key_id, "/v1/keys/{0}")._replace(rule=owner_too),),
    "GET /v1/roles": (fixed("/v1/roles", rule=by_right(Right.ACCESS)),),
    "PUT /v1/roles/{name}": (fixed("/v1/roles/readers", {"grants": ["access"]}),),
    "DELETE /v1/roles/{name}": (Attempt(delete_role, (HOME,)),),
    "GET /v1/trusts": (fixed("/v1/trusts", shows=True),),
    "PUT /v1/trusts/{name}/{trusted}": (Attempt(save_trust, (HOME, AWAY)),),
    "DELETE /v1/trusts/{name}/{trusted}": (
        Attempt(on(World.trust, "/v1/trusts/{scope}/other").make, (HOME, AWAY)),
    ),
    "GET /v1/audit": (fixed("/v1/audit", shows=True),),
    "POST /v1/publish": (Attempt(publish),),
    "POST /v1/publish/batch": (Attempt(publish_many),),
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
