"""Stores webhooks about human steps, and what was sent about each step."""

import re

import msgspec

from penstock.broker.documents import decode_document, list_documents
from penstock.errors import Conflict, InvalidInput, NotFound, Refused
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.human_webhooks import (
    HUMAN_WEBHOOK,
    HumanWebhook,
    HumanWebhookState,
    HumanWebhookStatus,
    StepNotice,
)
from penstock.model.message import MICROS_PER_SECOND, Moment
from penstock.rules.callbacks import check_url
from penstock.rules.validation import clip
from penstock.store import Store

STATE, OPEN_NOTICE, DONE_NOTICE = "human_webhook_state", "human_notice", "human_notice_done"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_WEBHOOKS = 100
# How long it is remembered that the outcome of a step was sent.
DONE_S = 7 * 86_400
encode = msgspec.json.Encoder().encode


class HumanWebhooks:
    """The webhooks of one tenant."""

    def __init__(self, store: Store, tenant: str) -> None:
        self.store = store
        self.tenant = tenant

    async def add(
        self, name: str, url: str, *, links: bool = False, scope: str = "default"
    ) -> HumanWebhook:
        """Notifies about steps that open from now on. Raises Conflict if the name is taken."""
        check_webhook_name(name)
        check_url("url", url)
        if len(await list_webhooks(self.store)) >= MAX_WEBHOOKS:
            raise Refused(f"the store has {MAX_WEBHOOKS} webhooks already; delete one first")
        now = await self.store.now()
        made = HumanWebhook(
            name=name, tenant=self.tenant, scope=scope, url=url, links=links, created_at=now
        )
        document = Document(kind=HUMAN_WEBHOOK, name=make_key(made), body=encode(made), version=0)
        if await self.store.advance(Change(guards=(document,))) is None:
            raise Conflict(f"webhook {name!r} already exists; delete it first")
        return made

    async def list(self, *, scope: str = "default") -> list[HumanWebhookStatus]:
        found = await list_webhooks(self.store)
        ours = [each for each in found if (each.tenant, each.scope) == (self.tenant, scope)]
        return [HumanWebhookStatus(each, await read_state(self.store, each)) for each in ours]

    async def delete(self, name: str, *, scope: str = "default") -> None:
        key = f"{self.tenant}/{scope}/{name}"
        if await self.store.document(HUMAN_WEBHOOK, key) is None:
            raise NotFound(f"no webhook named {clip(name)}")
        await self.store.advance(Change(deletes=((HUMAN_WEBHOOK, key), (STATE, key))))
        for kind in (OPEN_NOTICE, DONE_NOTICE):
            names = [each.name for each in await list_documents(self.store, kind, f"{key}/")]
            await self.store.delete_documents(kind, names)


def check_webhook_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise InvalidInput(
            f"webhook name {clip(name)} is invalid; use up to 64 letters, digits, . _ or -"
        )


def make_key(webhook: HumanWebhook) -> str:
    return f"{webhook.tenant}/{webhook.scope}/{webhook.name}"


async def list_webhooks(store: Store) -> list[HumanWebhook]:
    found = await store.documents(HUMAN_WEBHOOK, limit=MAX_WEBHOOKS)
    return [decode_document(each, HumanWebhook) for each in found]


async def read_state(store: Store, webhook: HumanWebhook) -> HumanWebhookState:
    found = await store.document(STATE, make_key(webhook))
    return HumanWebhookState() if found is None else decode_document(found, HumanWebhookState)


async def save_state(store: Store, webhook: HumanWebhook, state: HumanWebhookState) -> None:
    await store.save_documents([Document(kind=STATE, name=make_key(webhook), body=encode(state))])


class WebhookDeliveries:
    """The notifications of one receiver. The version lets only one server send each of them."""

    def __init__(self, store: Store, webhook: HumanWebhook) -> None:
        self.store = store
        self.prefix = f"{make_key(webhook)}/"

    async def read_open(self) -> dict[int, tuple[StepNotice, int]]:
        """Returns the steps whose outcome was not sent yet, each with its version."""
        return {
            int(each.name.removeprefix(self.prefix)): (
                decode_document(each, StepNotice),
                each.version or 0,
            )
            for each in await list_documents(self.store, OPEN_NOTICE, self.prefix)
        }

    async def begin(self, id: int) -> None:
        """Starts to follow a step, unless its outcome was sent or another server was first."""
        name = self.prefix + str(id)
        if await self.store.document(DONE_NOTICE, name) is None:
            new = Document(kind=OPEN_NOTICE, name=name, body=encode(StepNotice()), version=0)
            await self.store.save_documents([new])

    async def save(self, id: int, notice: StepNotice, version: int) -> bool:
        name = self.prefix + str(id)
        document = Document(kind=OPEN_NOTICE, name=name, body=encode(notice), version=version)
        (saved,) = await self.store.save_documents([document])
        return saved

    async def finish(self, id: int, now: Moment) -> None:
        name, until = self.prefix + str(id), now + DONE_S * MICROS_PER_SECOND
        done = Document(kind=DONE_NOTICE, name=name, body=b"{}", expires_at=until)
        await self.store.advance(Change(saves=(done,), deletes=((OPEN_NOTICE, name),)))
