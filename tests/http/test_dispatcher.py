"""What servers send by themselves, each in this process and by a clock that the test turns."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest

from penstock import stores
from penstock.agents.callback_dispatcher import CallbackDispatcher
from penstock.agents.subscription_notifier import SubscriptionNotifier
from penstock.broker.local import Broker
from penstock.broker.webhook_secrets import ROTATION_OVERLAP_S, SecretRotation, WebhookSecrets
from penstock.errors import Busy, Refused
from penstock.model.message import Draft, Nack, Record, State
from penstock.model.queue import CALLBACK, QueueState
from penstock.model.store_types import Retention
from penstock.rules.subscriptions import WebhookSubscription
from penstock.store import Store
from penstock.testing.simulation import ManualClock
from penstock.webhooks.egress import EgressPolicy
from penstock.webhooks.sender import WebhookSender
from penstock.webhooks.subscriptions import MAX_PER_QUEUE, SubscriptionStore
from tests.http.receiver import Receiver, receiving

pytestmark = pytest.mark.anyio
OPEN = EgressPolicy(private=True, ports=None)


class Node:
    """What of a server sends, without the server."""

    def __init__(self, store: Store, clock: ManualClock, reach: EgressPolicy = OPEN) -> None:
        self.store = store
        self.clock = clock
        self.broker = Broker(store)
        self.sender = WebhookSender(reach)
        self.callbacks = CallbackDispatcher(store, self.broker.directory, self.sender, "node")
        self.notices = SubscriptionNotifier(
            store, self.broker.directory, self.sender, self.count_ready, "https://queue.example"
        )

    async def count_ready(self, queue_id: int) -> int:
        return (await self.store.depths(0)).get((queue_id, "ready"), 0)

    async def tick(self) -> None:
        """One look of each, until what it sends is answered."""
        for agent in (self.callbacks, self.notices):
            await agent.tick()
            if agent.sending:
                await asyncio.wait(agent.sending)

    async def turn(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await self.store.promote(100)
        await self.tick()

    async def completed(self, url: str, broker: Broker | None = None, result: bytes = b"") -> int:
        broker = broker or self.broker
        id = (await broker.publish(Draft(callback=url))).id
        (held,) = (await broker.claim("default", consumer="c")).messages
        await broker.complete(held, result or None)
        return id

    async def log(self, id: int) -> Record:
        (record,) = await self.broker.admin.callbacks(id)
        return record


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(await stores.open("sqlite://", clock=clock))
        made = Node(store, clock)
        await stack.enter_async_context(made.sender)
        yield made


async def test_after_twelve_tries_it_is_a_dead_letter_that_can_be_redriven(
    node: Node, receiver: Receiver
) -> None:
    receiver.answers["/"] = [500]
    id = await node.completed(f"{receiver.url}/")
    await node.tick()
    for _ in range(13):
        await node.turn(400)
    log = await node.log(id)
    assert (len(receiver.posts), log.state, log.attempts) == (12, State.DEAD, 12)
    assert (log.reason, log.error) == ("retries_exhausted", "status 500")
    waits = [((row.due_at or 0) - row.at) / 1_000_000 for row in log.timeline[:-1]]
    assert all(before < after for before, after in pairwise(waits[:9]))
    assert (1 <= waits[0] <= 1.2, 256 <= waits[8] <= 308, max(waits) <= 360) == (True,) * 3
    receiver.answers.clear()
    await node.broker.admin.redrive(log.message.id)
    await node.turn(1)
    assert (await node.log(id)).state is State.COMPLETED
    assert len({post.id for post in receiver.posts}) == 1


async def test_a_short_result_that_is_json_is_sent_and_no_other(
    node: Node, receiver: Receiver
) -> None:
    for result in (b'{"a":1}', b"no json", b'"' + b"x" * 70_000 + b'"', b""):
        await node.completed(f"{receiver.url}/", result=result)
        await node.tick()
    assert [post.json["data"].get("result") for post in receiver.posts] == [
        {"a": 1}, None, None, None
    ]  # fmt: skip


async def test_of_an_end_after_another_each_is_told_as_it_was(
    node: Node, receiver: Receiver
) -> None:
    id = (await node.broker.publish(Draft(callback=f"{receiver.url}/", max_attempts=1))).id
    (held,) = (await node.broker.claim("default", consumer="c")).messages
    await node.broker.settle(held, Nack("broken"))
    await node.broker.admin.redrive(id)
    (held,) = (await node.broker.claim("default", consumer="c")).messages
    await node.broker.complete(held)
    await node.tick()
    told = {post.json["type"]: post.json["data"] for post in receiver.posts}
    assert set(told) == {"message.dead", "message.completed"}
    assert told["message.dead"]["error"] == "broken"
    assert "error" not in told["message.completed"]


async def test_what_retention_took_cannot_be_told_of(node: Node, receiver: Receiver) -> None:
    id = await node.completed(f"{receiver.url}/")
    queue = await node.broker.admin.queue("default")
    node.clock.advance(10)
    await node.store.prune(Retention((queue.id,), node.clock(), 0))
    await node.tick()
    (record,) = await node.broker.admin.find(CALLBACK)
    assert (record.state, record.error) == (
        State.FAILED,
        f"message {id} ended and was removed by retention",
    )


@pytest.mark.parametrize("body", [b"x", b'{"id":"x","state":"dead"}', b'{"id":"1","state":"dead"}'])
async def test_a_callback_that_says_nothing_true_is_given_up(
    node: Node, receiver: Receiver, body: bytes
) -> None:
    receiver.answers["/"] = [410]
    id = await node.completed(f"{receiver.url}/")
    await node.tick()
    copy = await node.broker.admin.redrive((await node.log(id)).message.id, body=body)
    await node.tick()
    record = await node.broker.admin.get(copy.id)
    assert (record.state, len(receiver.posts)) == (State.FAILED, 1)


async def test_a_queue_of_callbacks_that_is_paused_waits(node: Node, receiver: Receiver) -> None:
    await node.broker.admin.set_state(CALLBACK, QueueState.PAUSED)
    await node.completed(f"{receiver.url}/")
    await node.tick()
    assert receiver.posts == []
    await node.broker.admin.set_state(CALLBACK, QueueState.ACTIVE)
    await node.tick()
    assert len(receiver.posts) == 1


async def test_a_server_that_stops_hands_back_what_it_was_sending(
    node: Node, receiver: Receiver
) -> None:
    receiver.answers["/"] = [b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n", 200]
    id = await node.completed(f"{receiver.url}/")
    async with node.callbacks:
        await node.callbacks.tick()
        await asyncio.to_thread(receiver.wait, "/")
    log = await node.log(id)
    assert (log.state, log.attempts, log.deliveries) == (State.READY, 0, 0)
    await node.tick()
    assert (await node.log(id)).state is State.COMPLETED
    assert len({post.id for post in receiver.posts}) == 1


async def test_a_private_address_is_refused_where_it_is_sent(receiver: Receiver) -> None:
    clock = ManualClock()
    async with await stores.open("sqlite://", clock=clock) as store:
        node = Node(store, clock, EgressPolicy(ports=None))
        async with node.sender:
            id = await node.completed(f"{receiver.url}/")
            await node.tick()
            log = await node.log(id)
    assert (log.state, log.error) == (State.SCHEDULED, "not sent: the address is not public")
    assert receiver.posts == []


async def test_every_tenant_has_a_secret_of_its_own(node: Node, receiver: Receiver) -> None:
    scope = await node.store.create_scope("other", "default")
    other = Broker(node.store, tenant="other")
    await other.admin.create_queue("default")
    assert scope.tenant == "other"
    await node.completed(f"{receiver.url}/mine")
    await node.completed(f"{receiver.url}/other", other)
    await node.tick()
    signing = WebhookSecrets(node.store)
    mine, others = await signing.secrets("default"), await signing.secrets("other")
    assert mine != others
    receiver.of("/mine")[0].verify(mine.current)
    receiver.of("/other")[0].verify(others.current)


async def test_a_secret_is_valid_for_a_day_after_it_was_replaced(node: Node) -> None:
    signing = WebhookSecrets(node.store)
    first = await signing.secrets("default")
    assert (first.valid, first.current.startswith("whsec_")) == ([first.current], True)
    second = await signing.rotate("default")
    assert second.valid == [second.current, first.current]
    node.clock.advance(ROTATION_OVERLAP_S - 1)
    assert await signing.secrets("default") == second
    node.clock.advance(1)
    assert (await signing.secrets("default")).valid == [second.current]
    third = await signing.rotate("default")
    assert third.valid == [third.current, second.current]


async def test_of_two_rotations_at_once_one_is_refused(node: Node) -> None:
    class Slow(WebhookSecrets):
        async def _load_rotation(self, tenant: str) -> tuple[SecretRotation, int]:
            found = await super()._load_rotation(tenant)
            await WebhookSecrets(self.store).rotate(tenant)
            return found

    with pytest.raises(Busy):
        await Slow(node.store).rotate("default")


async def subscribe(node: Node, url: str) -> str:
    queue = await node.broker.admin.queue("default")
    new = WebhookSubscription(
        id="", tenant="default", scope="default", url=url, queues=("default",), ttl=60.0,
        min_interval=1.0,
    )  # fmt: skip
    return (await node.notices.subscribers.add(new, [queue])).subscription.id


async def test_a_subscription_that_has_expired_hears_nothing(
    node: Node, receiver: Receiver
) -> None:
    id = await subscribe(node, f"{receiver.url}/")
    await node.broker.publish(Draft())
    await node.turn(59)
    assert len(receiver.posts) == 1
    await node.notices.subscribers.renew("default", "default", id)
    await node.turn(59)
    assert len(receiver.posts) == 2
    await node.turn(1)
    assert len(receiver.posts) == 2
    assert await node.notices.subscribers.list_all() == []


async def test_of_two_servers_that_look_at_once_one_tells(node: Node, receiver: Receiver) -> None:
    other = Node(node.store, node.clock)
    await subscribe(node, f"{receiver.url}/")
    await node.broker.publish(Draft())
    async with other.sender:
        await asyncio.gather(node.notices.tick(), other.notices.tick())
        await asyncio.wait(node.notices.sending | other.notices.sending)
    assert len(receiver.posts) == 1


async def test_a_heartbeat_and_a_notice_do_not_undo_each_other(
    node: Node, receiver: Receiver
) -> None:
    id = await subscribe(node, f"{receiver.url}/")
    (seen,) = await node.notices.subscribers.list_all()
    node.clock.advance(10)
    beaten = await node.notices.subscribers.renew("default", "default", id)
    assert not await node.notices.mark(seen, "default", node.clock())
    (kept,) = await SubscriptionStore(node.store).list_all()
    assert kept.expires_at == beaten.expires_at
    assert await node.notices.mark(kept, "default", node.clock())
    (told,) = await SubscriptionStore(node.store).list_all()
    assert (told.subscription.notified_at, told.expires_at) == (
        {"default": node.clock()},
        beaten.expires_at,
    )


async def test_a_queue_has_a_hundred_subscriptions_and_no_more(node: Node) -> None:
    for number in range(MAX_PER_QUEUE):
        await subscribe(node, f"https://example.org/{number}")
    with pytest.raises(Refused, match="100 subscriptions"):
        await subscribe(node, "https://example.org/")
    node.clock.advance(60)
    await subscribe(node, "https://example.org/")


async def test_callbacks_of_two_stores_have_different_ids() -> None:
    async with await stores.open("sqlite://") as one, await stores.open("sqlite://") as other:
        ids = [await WebhookSecrets(store).make_id(7) for store in (one, one, other)]
    assert ids[0] == ids[1] != ids[2]
