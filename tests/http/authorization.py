"""A service in this process, callers of every kind, and things for them to act on."""

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from penstock.broker.credentials import Credentials
from penstock.broker.local import Broker
from penstock.errors import Conflict
from penstock.http.asgi import AsgiApp
from penstock.http.auth.authenticate import Authenticator
from penstock.http.auth.identity import TrustedIssuers
from penstock.http.context import RESPONDER_EXTENSION
from penstock.http.handlers.claim import make_lock
from penstock.http.state import ServerLimits, ServerState
from penstock.model.human import HumanPattern, HumanSpec
from penstock.model.message import NEVER, Draft, SettleReject
from penstock.model.queue import DEAD_LETTER, EVERY, Schedule
from penstock.model.store_types import Lock, WorkerInfo
from penstock.model.workflow import NodeDraft
from penstock.rules.access import Key, Right
from penstock.rules.human import Person
from penstock.rules.human_links import HumanLink, HumanLinks
from penstock.rules.human_spec import DEFAULT_OPTIONS
from penstock.rules.rule_checks import parse_rule
from penstock.rules.subscriptions import WebhookSubscription
from penstock.store import Store
from tests.http.issuer import AUDIENCE, Issuer

SCOPES = ("away", "other")


class Place(NamedTuple):
    """Where a thing is. Names of its queues begin with the place's."""

    name: str
    tenant: str = "default"
    scope: str = "default"


HOME, AWAY = Place("home"), Place("away", scope="away")
DENIED, FOREIGN = Place("payroll"), Place("foreign", tenant="acme")
PLACES = (HOME, AWAY, DENIED, FOREIGN)


class Who(NamedTuple):
    """A caller, and what it may do by its grants."""

    name: str
    rights: frozenset[Right] = frozenset()
    scopes: Sequence[str] = (EVERY,)
    # Names of its queues begin so that it may not touch them.
    denied: str | None = None
    tenant: str = "default"
    token: str | None = None
    subject: str = ""

    @property
    def holder(self) -> str:
        return f"{self.tenant}/{self.subject}"

    def everywhere(self, right: Right) -> bool:
        return right in self.rights and EVERY in self.scopes and self.denied is None

    def at(self, right: Right, place: Place) -> bool:
        return (
            right in self.rights
            and place.tenant == self.tenant
            and (EVERY in self.scopes or place.scope in self.scopes)
            and place.name != self.denied
        )

    def over(self, right: Right, place: Place) -> bool:
        """On all queues of its scope."""
        return self.at(right, place) and self.denied is None


class Ask(NamedTuple):
    path: str
    body: Any = None
    scope: str | None = None


class Reply(NamedTuple):
    status: int
    body: bytes

    @property
    def refused(self) -> bool:
        """As a whole, or the only item of a batch."""
        if self.status in (401, 403, 404):
            return True
        with suppress(msgspec.DecodeError):
            told = msgspec.json.decode(self.body)
            items = told.get("items", ()) if isinstance(told, dict) else ()
            codes = [item.get("error", {}).get("code") for item in items if isinstance(item, dict)]
            return codes in (["FORBIDDEN"], ["NOT_FOUND"])
        return False


class Exchange:
    """One request and its answer, as the protocol hands them to the application."""

    def __init__(self, body: bytes) -> None:
        self.sent = body
        self.status = 0
        self.received = b""
        self.asked = False

    def body(self) -> bytes:
        return self.sent

    @property
    def has_unread_body(self) -> bool:
        return False

    def watch(self, on_disconnect: object) -> None:
        pass

    def stop_watching(self) -> bool:
        return False

    async def __call__(self, status: int, headers: object, body: bytes) -> None:
        self.status, self.received = status, body

    async def receive(self) -> dict[str, Any]:
        """The body, and then the client leaves."""
        if self.asked:
            return {"type": "http.disconnect"}
        self.asked = True
        return {"type": "http.request", "body": self.sent, "more_body": False}

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.received += message.get("body", b"")


class World:
    def __init__(self, store: Store, secret: bytes, issuer: Issuer) -> None:
        self.store = store
        trusted = TrustedIssuers(issuer.url, AUDIENCE, f"{issuer.url}/keys")
        self.gate = Authenticator(store, trusted)
        self.service = ServerState(
            store, secret, ServerLimits(), authenticator=self.gate, agents=False
        )
        self.app = AsgiApp(self.service)
        self.credentials = Credentials(store)
        self.numbers = itertools.count(1)
        # By the name of the place: where its messages are.
        self.queues: dict[str, str] = {}

    async def prepare(self) -> None:
        for scope in SCOPES:
            await self.store.create_scope("default", scope)
        await self.credentials.create_tenant("acme")

    async def ask(self, who: Who, method: str, ask: Ask) -> Reply:
        body = ask.body if isinstance(ask.body, bytes) else b""
        if ask.body is not None and not isinstance(ask.body, bytes):
            body = msgspec.json.encode(ask.body)
        exchange = Exchange(body)
        shown = [] if who.token is None else [(b"authorization", f"Bearer {who.token}".encode())]
        path, _, query = ask.path.partition("?")
        if ask.scope is not None:
            query = "&".join(filter(None, [query, urlencode({"scope": ask.scope})]))
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": quote(path).encode(), "root_path": "",
            "query_string": query.encode(), "headers": shown, "client": ("192.0.2.1", 1),
            "server": ("127.0.0.1", 1),
            "extensions": {RESPONDER_EXTENSION: {"responder": exchange}},
        }  # fmt: skip
        async with asyncio.timeout(60):
            await self.app(scope, exchange.receive, exchange.send)
        return Reply(exchange.status, exchange.received)

    # Callers.

    async def key(self, who: Who, **grants: Any) -> Who:
        new = Key(id="", name=who.name, tenant=who.tenant, scopes=tuple(who.scopes), **grants)
        key, token = await self.credentials.create_key(new)
        return who._replace(token=token, subject=f"key:{key.id}")

    async def save_role(self, name: str, *grants: str, tenant: str = "default") -> None:
        await self.credentials.save_role(tenant, name, grants)
        # Servers know it within seconds; this one at once.
        self.gate.known.clear()

    # Things.

    def broker(self, place: Place) -> Broker:
        return self.service.get_broker(place.tenant)

    async def queue(self, place: Place) -> str:
        name = f"{place.name}-{next(self.numbers)}"
        await self.broker(place).admin.create_queue(name, scope=place.scope)
        return name

    async def message(self, place: Place, *, dead: bool = False) -> int:
        # One queue for all: every new queue makes the server read all of them again.
        if place.name not in self.queues:
            self.queues[place.name] = await self.queue(place)
        queue, broker = self.queues[place.name], self.broker(place)
        published = await broker.publish(Draft(queue=queue), scope=place.scope)
        if dead:
            taken = await broker.claim(queue, consumer="c", scope=place.scope, limit=1_000)
            for message in taken.messages:
                await broker.settle(message, SettleReject("no"))
        return published.id

    async def lock_token(self, place: Place, who: Who, *, from_dead: bool = False) -> str:
        """Of a message that the caller claimed when it had the right to."""
        id = await self.message(place, dead=from_dead)
        broker = self.broker(place)
        record = await broker.admin.get(id)
        queue = await broker.directory.get_by_id(record.message.queue_id)
        name = DEAD_LETTER if from_dead else queue.name
        taken = await broker.claim(
            name, consumer="c", scope=place.scope, limit=1_000, lease=3_600, dead_of=[queue.id]
        )
        (message,) = (each for each in taken.messages if each.id == id)
        holder = who.holder if who.tenant == place.tenant else f"{place.tenant}/key:1"
        return self.service.tokens.sign(make_lock(message), holder)

    async def bulk_action(self, place: Place) -> int:
        """An action of an operator, and no other that is active."""
        bulk = self.broker(place).bulk
        for each in await bulk.list_actions(active=True):
            await bulk.abort(each.id)
        return (await bulk.start("cancel", filter=f"queue:{place.name}-*", scope=place.scope)).id

    async def key_id(self, place: Place) -> str:
        new = Key(
            id="", name=f"{place.name}-key", tenant=place.tenant, grants=("access",),
            scopes=(place.scope,),
        )  # fmt: skip
        key, _ = await self.credentials.create_key(new)
        return key.id

    async def subscription(self, place: Place) -> str:
        queue = await self.queue(place)
        found = await self.broker(place).admin.queue(queue, scope=place.scope)
        new = WebhookSubscription(
            id="", tenant=place.tenant, scope=place.scope, url="https://example.org/",
            queues=(queue,),
        )  # fmt: skip
        kept = await self.service.subscribers.add(new, [found])
        return kept.subscription.id

    async def schedule(self, place: Place) -> tuple[str, str]:
        queue = await self.queue(place)
        schedule = Schedule(f"{place.name}-s", "0 0 1 1 *", Draft(queue=queue))
        await self.broker(place).admin.schedule(schedule, scope=place.scope)
        return queue, schedule.name

    async def rule(self, place: Place) -> str:
        name = f"rule-{next(self.numbers)}"
        given = {"name": name, "scope": place.scope, "queue": "nothing", "do": [{"delay": 1}]}
        await self.broker(place).rules.save(parse_rule(given))
        return name

    async def schema(self, place: Place, name: str = "order") -> str:
        await self.broker(place).schemas.add(name, {"type": "object"}, scope=place.scope)
        return name

    async def unbound_schema(self, place: Place) -> str:
        return await self.schema(place, f"unbound-{next(self.numbers)}")

    async def bindable_queue(self, place: Place) -> str:
        await self.schema(place)
        return await self.queue(place)

    async def binding(self, place: Place) -> str:
        queue = await self.bindable_queue(place)
        await self.broker(place).schemas.bind(queue, "order", scope=place.scope)
        return queue

    async def durable_subscription(self, place: Place) -> tuple[str, str]:
        queue = f"{place.name}-{next(self.numbers)}"
        broker = self.broker(place)
        await broker.admin.create_queue(queue, scope=place.scope, kind="broadcast")
        await broker.broadcasts.subscribe(queue, "a", scope=place.scope)
        return queue, "a"

    async def trust(self, place: Place) -> None:
        await self.credentials.save_trust(place.tenant, place.scope, "other", ["publish:home"])

    async def worker(self, place: Place) -> str:
        id = f"{place.name}-w{next(self.numbers)}"
        await self.store.save_worker(WorkerInfo(id, "box", 1, ()))
        return id

    async def role(self, tenant: str) -> str:
        name = f"role-{next(self.numbers)}"
        with suppress(Conflict):
            await self.credentials.save_role(tenant, name, ["read"])
        return name

    async def callback_token(self, place: Place) -> str:
        id = await self.message(place)
        return await self.broker(place).waits.make_token(Lock(id, 0), "go", NEVER)

    async def human_step(self, place: Place) -> int:
        spec = HumanSpec(title=f"{place.name}-step", options=DEFAULT_OPTIONS)
        return (await self.broker(place).inbox.request(spec, scope=place.scope)).id

    async def human_link(self, place: Place) -> str:
        id = await self.human_step(place)
        found = await self.broker(place).inbox.get(id, Person("", sees_all=True), scope=place.scope)
        link = HumanLink(place.tenant, place.scope, id, "ann", NEVER)
        return HumanLinks(self.service.tokens.secret).make(link, found.step.spec)

    async def human_pattern(self, place: Place) -> str:
        name = f"{place.name}-{next(self.numbers)}"
        pattern = HumanPattern(name=name, spec={"title": "x"})
        await self.broker(place).inbox.patterns.save(pattern, scope=place.scope)
        return name

    async def workflow(self, place: Place) -> str:
        node = NodeDraft(draft=Draft(queue=await self.queue(place)))
        started = await self.broker(place).workflows.start("w", [node], scope=place.scope)
        return started.id

    async def ended_workflow(self, place: Place) -> str:
        id = await self.workflow(place)
        await self.broker(place).workflows.cancel(id, scope=place.scope)
        return id

    async def resume(self) -> None:
        """What a caller paused or archived."""
        if await self.store.documents("scope"):
            for tenant, name in (("default", "default"), ("default", "away")):
                await self.service.get_broker(tenant).scopes.unarchive(name)
        for tenant, name in (("default", "default"), ("default", "away"), ("acme", "default")):
            scope = await self.store.scope(tenant, name)
            if scope is not None and scope.paused:
                await self.store.pause_scope(scope.id, False)


async def every_caller(world: World, issuer: Issuer) -> list[Who]:
    """One of each kind, and one that had every right and lost it."""
    usual = frozenset(Right) - {Right.SHELL}
    await world.save_role("lost", "*")
    single = [
        await world.key(Who(right.value, frozenset({right})), grants=(right.value,))
        for right in Right
    ]
    operator = frozenset({Right.PUBLISH, Right.CONSUME, Right.READ, Right.MANAGE, Right.SIGNAL})
    lost = await world.key(Who("lost"), roles=("lost",))
    assert (await world.ask(lost, "GET", Ask("/v1/keys"))).status == 200
    await world.save_role("lost", "-*")
    return [
        Who("nobody"),
        Who("unknown key", token="psk_0_wrong"),
        *single,
        lost,
        Who(
            "token of the issuer",
            frozenset({Right.CONSUME, Right.READ}),
            token=issuer.token(scope="penstock:consume penstock:read"),
            subject="jwt:ada",
        ),
        await world.key(Who("operator", operator), roles=("operator",)),
        await world.key(Who("admin", usual), roles=("admin",)),
        await world.key(Who("admin at home", usual, ["default"]), roles=("admin",)),
        # Who is denied something does not manage the access to it.
        await world.key(
            Who("all but payroll", usual - {Right.ACCESS}, denied=DENIED.name),
            grants=("*", "-*:payroll-*"),
        ),
        await world.key(Who("admin of acme", usual, tenant="acme"), roles=("admin",)),
    ]
