"""The subscriptions that are kept in the store: made, kept alive, ended, read."""

import secrets

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import Busy, Forbidden, InvalidInput, NotFound, Refused
from penstock.model.documents import Document
from penstock.model.message import MICROS_PER_SECOND, Moment
from penstock.model.queue import Queue
from penstock.retry_policies import SUBSCRIPTION, Retries
from penstock.rules.subscriptions import WebhookSubscription
from penstock.store import Store

KIND = "subscription"
# Maximum per queue.
MAX_PER_QUEUE = 100
PAGE_SIZE = 1_000
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(WebhookSubscription).decode


class StoredSubscription(Struct, frozen=True):
    """A subscription as it is stored."""

    subscription: WebhookSubscription
    version: int
    expires_at: Moment


class SubscriptionStore:
    def __init__(self, store: Store) -> None:
        self.store = store

    async def list_all(self) -> list[StoredSubscription]:
        """The living ones, of all tenants."""
        found: list[Document] = []
        page: list[Document] = await self.store.documents(KIND, limit=PAGE_SIZE)
        while page:
            found += page
            full = len(page) == PAGE_SIZE
            page = await self.store.documents(KIND, page[-1].name, PAGE_SIZE) if full else []
        return [decode_subscription(each) for each in found]

    async def list_for(self, tenant: str, scope: str) -> list[StoredSubscription]:
        return [each for each in await self.list_all() if is_owned_by(each, tenant, scope)]

    async def add(self, new: WebhookSubscription, queues: list[Queue]) -> StoredSubscription:
        for queue in queues:
            refuse_unfit(new, queue)
        others = [each.subscription for each in await self.list_for(new.tenant, new.scope)]
        for queue in queues:
            if sum(queue.name in each.queues for each in others) >= MAX_PER_QUEUE:
                raise Refused(f"queue {queue.name!r} has {MAX_PER_QUEUE} subscriptions already")
        named = replace(new, id=secrets.token_hex(8))
        kept = StoredSubscription(named, 0, await self._end(named))
        await self.save(kept, named)
        return kept

    async def renew(self, tenant: str, scope: str, id: str) -> StoredSubscription:
        """Extends the subscription by another ttl."""
        retries: Retries | None = None
        while True:
            kept = await self.get(tenant, scope, id)
            longer = replace(kept, expires_at=await self._end(kept.subscription))
            if await self.save(longer, kept.subscription):
                return longer
            retries = retries or SUBSCRIPTION.begin()
            if not await retries.again():
                raise Busy(f"subscription {id} is being changed by another request; try again")

    async def get(self, tenant: str, scope: str, id: str) -> StoredSubscription:
        found = await self.store.document(KIND, id)
        kept = None if found is None else decode_subscription(found)
        if kept is None or not is_owned_by(kept, tenant, scope):
            raise NotFound(f"no subscription with id {id!r}")
        return kept

    async def delete(self, id: str) -> None:
        await self.store.delete_documents(KIND, [id])

    async def save(self, kept: StoredSubscription, changed: WebhookSubscription) -> bool:
        """Returns False if another request changed it since it was read."""
        document = Document(
            kind=KIND,
            name=changed.id,
            body=encode(changed),
            version=kept.version,
            expires_at=kept.expires_at,
        )
        (saved,) = await self.store.save_documents([document])
        return saved

    async def _end(self, subscription: WebhookSubscription) -> Moment:
        return await self.store.now() + int(subscription.ttl * MICROS_PER_SECOND)


def decode_subscription(document: Document) -> StoredSubscription:
    return StoredSubscription(decode(document.body), document.version or 0, document.expires_at)


def is_owned_by(kept: StoredSubscription, tenant: str, scope: str) -> bool:
    return (kept.subscription.tenant, kept.subscription.scope) == (tenant, scope)


def refuse_unfit(new: WebhookSubscription, queue: Queue) -> None:
    if queue.system:
        raise Forbidden(f"queue {queue.name!r} is a system queue and cannot be subscribed to")
    if new.types and not queue.settings.filter_by_type:
        raise InvalidInput(
            f"types: queue {queue.name!r} is not searched by type; its setting filter_by_type is"
            " off"
        )
