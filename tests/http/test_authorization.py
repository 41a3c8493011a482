"""Every route, by every kind of caller, on things in every place: allowed or refused as declared.

A route that is not in ATTEMPTS fails a test; what it asks of callers is declared beside it.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest

from penstock import stores
from penstock.http.auth.principal import OWNER, Requirement, RightScope
from penstock.http.handlers import system
from penstock.http.routes import OPERATIONS
from penstock.rules.access import Right
from tests.http.attempts import ATTEMPTS, Attempt, Rule, claim_dead
from tests.http.authorization import AWAY, DENIED, PLACES, Ask, Place, Who, World, every_caller
from tests.http.issuer import Issuer, issuing

pytestmark = pytest.mark.anyio

DECLARED: dict[str, Requirement] = {
    f"{operation.method} {operation.path}": operation.requires for operation in OPERATIONS
}
SCOPED = {f"{each.method} {each.path}" for each in OPERATIONS if each.scoped}
# Beyond the largest process id that Linux gives.
NO_PROCESS = 2**22 + 1
PRESENT = {"host": "far", "pid": 1, "queues": []}
PUBLIC_PATHS = {operation.path for operation in OPERATIONS if operation.public}


def test_every_route_is_tried() -> None:
    assert ATTEMPTS.keys() == DECLARED.keys()


def may(who: Who, required: Requirement, attempt: Attempt, place: Place) -> bool:
    right = required.right
    if attempt.rule is not None or right is None:
        assert attempt.rule is not None
        return attempt.rule(who, place)
    if attempt.shows:
        return right in who.rights
    allowed = {
        RightScope.QUEUE: who.at(right, place),
        RightScope.SCOPE: who.over(right, place),
        RightScope.TENANT: who.everywhere(right),
        RightScope.STORE: who.everywhere(right) and who.tenant == OWNER,
    }[required.extent]
    return allowed and (attempt.also is None or who.at(attempt.also, place))


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as running:
        yield running


@pytest.fixture
async def world(issuer: Issuer) -> AsyncIterator[World]:
    async with await stores.open("sqlite://") as store:
        made = World(store, await store.secret(), issuer)
        await made.prepare()
        yield made


async def fill(world: World) -> None:
    """Something of every kind in every place, for lists not to show."""
    for place in PLACES:
        await world.message(place)
        await world.message(place, dead=True)
        await world.subscription(place)
        await world.schedule(place)
        await world.workflow(place)
        await world.binding(place)
        await world.key_id(place)
    await world.trust(AWAY)


def hidden(who: Who, sees: Rule) -> list[bytes]:
    """What names of things begin with where this caller may not look."""
    return [f'"{place.name}-'.encode() for place in PLACES if not sees(who, place)]


def has_right(right: Right | None, who: Who, place: Place) -> bool:
    return right is not None and who.at(right, place)


@pytest.mark.parametrize("name", sorted(ATTEMPTS))
async def test_a_route_allows_what_it_declares(world: World, issuer: Issuer, name: str) -> None:
    method, _, path = name.partition(" ")
    required = DECLARED[name]
    await fill(world)
    for who in await every_caller(world, issuer):
        for attempt in ATTEMPTS[name]:
            for place in attempt.places:
                if who.tenant != place.tenant and attempt.places is not PLACES:
                    # Such a request is about the caller's own tenant.
                    continue
                ask = await attempt.make(world, place, who)
                scope = ask.scope if name in SCOPED else None
                reply = await world.ask(who, method, ask._replace(scope=scope))
                await world.resume()
                told = (who.name, place.name, reply)
                assert reply.status < 500, told
                refused = reply.refused and not (attempt.absent and reply.status == 404)
                assert refused is not may(who, required, attempt, place), told
                if not who.subject and path not in PUBLIC_PATHS:
                    assert reply.status == 401, told
                if reply.status == 200 and attempt.shows:
                    sees = attempt.sees or partial(has_right, required.right)
                    assert [each for each in hidden(who, sees) if each in reply.body] == [], told


async def test_dead_letters_of_a_denied_queue_are_not_handed_out(
    world: World, issuer: Issuer
) -> None:
    for who in await every_caller(world, issuer):
        await fill(world)
        reply = await world.ask(who, "POST", await claim_dead(world, DENIED, who))
        shown = b'"payroll-' in reply.body
        assert shown is who.at(Right.CONSUME, DENIED), (who.name, reply)


async def test_a_tenant_has_so_many_workers_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "MAX_WORKERS", 3)
    callers = [
        await world.key(Who("worker", tenant=tenant), roles=("worker",))
        for tenant in ("default", "acme")
    ]
    for who in callers:
        asks = [Ask(f"/v1/workers/w{number}", PRESENT) for number in range(4)]
        told = [(await world.ask(who, "PUT", ask)).status for ask in asks]
        assert told == [204, 204, 204, 409]
        # Those that are there go on.
        assert (await world.ask(who, "PUT", asks[0])).status == 204
        assert (await world.ask(who, "DELETE", asks[1])).status == 204
        assert (await world.ask(who, "PUT", asks[3])).status == 204
    assert len(await world.store.workers()) == 6


async def test_a_worker_that_was_dropped_counts_again_when_it_comes_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "MAX_WORKERS", 3)
    who = await world.key(Who("worker"), roles=("worker",))
    live = PRESENT
    gone = {**live, "host": socket.gethostname(), "pid": NO_PROCESS}
    for number in range(6):
        ask = Ask(f"/v1/workers/w{number}", gone if number < 3 else live)
        assert (await world.ask(who, "PUT", ask)).status == 204
    assert (await world.ask(who, "PUT", Ask("/v1/workers/w0", live))).status == 409
    assert (await world.ask(who, "PUT", Ask("/v1/workers/w5", live))).status == 204
    assert len(await world.store.workers()) == 3


async def test_workers_that_register_at_once_are_counted_one_by_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "MAX_WORKERS", 3)
    who = await world.key(Who("worker"), roles=("worker",))
    asks = [Ask(f"/v1/workers/w{number}", PRESENT) for number in range(6)]
    replies = await asyncio.gather(*(world.ask(who, "PUT", ask) for ask in asks))
    assert sorted(reply.status for reply in replies) == [204] * 3 + [409] * 3


async def test_a_tenant_has_so_many_workers_at_each_server_at_most(
    world: World, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "MAX_WORKERS", 3)
    other = World(world.store, await world.store.secret(), issuer)
    who = await world.key(Who("worker"), roles=("worker",))
    asks = [Ask(f"/v1/workers/w{number}", PRESENT) for number in range(12)]
    # The other server drops workers that this one has counted.
    for ask in asks:
        assert (await world.ask(who, "PUT", ask)).status == 204
        assert (await other.ask(who, "DELETE", ask)).status == 204
    for ask in asks:
        await world.ask(who, "PUT", ask)
    assert len(await world.store.workers()) == 3


SECRET = "psk_0123456789ab_ThisIsASecretAndNoNameAtAll"


@pytest.mark.parametrize("name", sorted(DECLARED))
async def test_no_refusal_records_what_a_path_holds(world: World, name: str) -> None:
    method, _, template = name.partition(" ")
    path = "/".join(SECRET if "{" in word else word for word in template.split("/"))
    shell = await world.key(Who("shell"), roles=("shell",))
    for who in (Who("nobody"), shell):
        await world.ask(who, method, Ask(path))
    await world.service.denial_log.tick()
    acts = await world.store.acts(limit=1_000)
    assert all(SECRET not in act.target + act.detail for act in acts)
    if template not in PUBLIC_PATHS:
        assert f"{method} {template}" in {act.target for act in acts}
