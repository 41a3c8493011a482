"""Notifies subscribers that their queues have work. Each hint is sent once."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Self

import msgspec
import structlog
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from penstock.broker.queue_cache import QueueCache
from penstock.broker.webhook_secrets import WebhookSecrets
from penstock.errors import NotFound, StoreError
from penstock.model.message import Moment
from penstock.model.queue import Queue
from penstock.rules.subscriptions import WebhookSubscription, choose_notices
from penstock.store import Store
from penstock.webhooks.sender import WebhookRequest, WebhookSender
from penstock.webhooks.subscriptions import StoredSubscription, SubscriptionStore
from penstock.wire.webhooks import make_notice

# Under way at a time, in one server; what comes beyond them is not sent.
MAX_IN_FLIGHT = 64
encode = msgspec.json.Encoder().encode
log: FilteringBoundLogger = structlog.get_logger()


class SubscriptionNotifier:
    name = "subscription_notifier"
    every = 1.0

    def __init__(
        self,
        store: Store,
        directory: QueueCache,
        sender: WebhookSender,
        count_ready: Callable[[int], Awaitable[int]],
        public_url: str = "",
    ) -> None:
        """`public_url` is where workers reach this service; without it notices name a path."""
        self.store = store
        self.count_ready = count_ready
        self.public_url = public_url.rstrip("/")
        self.directory = directory
        self.sender = sender
        self.signing = WebhookSecrets(store)
        self.subscribers = SubscriptionStore(store)
        self.sending: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for task in self.sending:
            task.cancel()
        if self.sending:
            await asyncio.wait(self.sending)

    async def tick(self) -> float:
        kept = {each.subscription.id: each for each in await self.subscribers.list_all()}
        waiting = await self.find_work(kept.values())
        now = await self.store.now() if waiting else 0
        for queue, each in choose_notices(waiting, now):
            if len(self.sending) >= MAX_IN_FLIGHT:
                break
            if await self.mark(kept[each.id], queue.name, now):
                self.begin(each, queue, now)
        return self.every

    async def find_work(
        self, kept: Iterable[StoredSubscription]
    ) -> list[tuple[Queue, list[WebhookSubscription]]]:
        """Returns the queues with work, each with the subscribers that could claim it."""
        found: list[tuple[Queue, list[WebhookSubscription]]] = []
        for (tenant, scope, name), subscribers in group_by_queue(kept).items():
            try:
                queue = await self.directory.get_by_name(tenant, scope, name)
            except NotFound:
                continue
            if queue.serves and (able := await self.find_able(queue, subscribers)):
                found.append((queue, able))
        return found

    async def find_able(
        self, queue: Queue, subscribers: Sequence[WebhookSubscription]
    ) -> list[WebhookSubscription]:
        kinds = {each.types for each in subscribers}
        work = {types: await self.store.has_ready(queue.id, types) for types in kinds}
        return [each for each in subscribers if work[each.types]]

    async def mark(self, kept: StoredSubscription, queue: str, now: Moment) -> bool:
        """Records the notice before it is sent, so that one of several servers sends it."""
        subscription = kept.subscription
        known = subscription.notified_at.items()
        notified_at = {name: at for name, at in known if name in subscription.queues}
        notified_at[queue] = now
        return await self.subscribers.save(kept, replace(subscription, notified_at=notified_at))

    def begin(self, subscription: WebhookSubscription, queue: Queue, now: Moment) -> None:
        task = asyncio.create_task(self.send(subscription, queue, now), name="notice")
        self.sending.add(task)
        task.add_done_callback(self.sending.discard)

    async def send(self, subscription: WebhookSubscription, queue: Queue, now: Moment) -> None:
        try:
            types = [
                each for each in subscription.types if await self.store.has_ready(queue.id, (each,))
            ]
            depth = await self.count_ready(queue.id)
            body = encode(make_notice(queue, types, depth, self.public_url, now))
            secrets = await self.signing.secrets(subscription.tenant)
            request = WebhookRequest(
                subscription.url, f"{subscription.id}-{now}", body, secrets.valid
            )
            result = await self.sender.post(request)
            if result.gone:
                await self.subscribers.delete(subscription.id)
        except StoreError as error:
            log.warning("notification_failed", subscription=subscription.id, error=str(error))
            return
        if not result.good:
            log.info("notification_rejected", subscription=subscription.id, response=str(result))


def group_by_queue(
    kept: Iterable[StoredSubscription],
) -> dict[tuple[str, str, str], list[WebhookSubscription]]:
    found: defaultdict[tuple[str, str, str], list[WebhookSubscription]] = defaultdict(list)
    for one in (each.subscription for each in kept):
        for queue in one.queues:
            found[one.tenant, one.scope, queue].append(one)
    return found
