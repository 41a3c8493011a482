"""Sends notifications about human steps to webhooks: opened, reminded, escalated, decided."""

import msgspec
import structlog
from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from penstock.broker.queue_cache import QueueCache
from penstock.broker.waiting.human_webhooks import (
    WebhookDeliveries,
    list_webhooks,
    make_key,
    read_state,
    save_state,
)
from penstock.broker.waiting.inbox import Inbox
from penstock.broker.webhook_secrets import WebhookSecrets
from penstock.errors import NotFound
from penstock.model.human_webhooks import HumanWebhook, HumanWebhookState, StepNotice
from penstock.model.message import MICROS_PER_SECOND, Moment
from penstock.model.queue import HUMAN
from penstock.model.store_types import Query
from penstock.rules import human_notifications
from penstock.rules.events import HUMAN_DECIDED
from penstock.rules.human import InboxStep, find_next_look
from penstock.rules.human_links import HumanLink, HumanLinks
from penstock.store import Store
from penstock.webhooks.sender import WebhookRequest, WebhookResult, WebhookSender
from penstock.wire.fields import to_datetime

# How long one server has to send a notification before another one tries.
SENDING_MICROS = 60 * MICROS_PER_SECOND
# Steps become visible when their transaction commits, so the last minutes are read again.
LOOK_BACK_MICROS = 600 * MICROS_PER_SECOND
MAX_LINK_MICROS = 7 * 86_400 * MICROS_PER_SECOND
MAX_SENT_PER_TICK = 100
PAGE_SIZE = 200
log: FilteringBoundLogger = structlog.get_logger()
encode = msgspec.json.Encoder().encode


class HumanNotifier:
    """Compares each step with what was sent about it. Links are derived and never stored."""

    name = "human_notifier"
    every = 2.0

    def __init__(
        self,
        store: Store,
        directory: QueueCache,
        sender: WebhookSender,
        links: HumanLinks,
        public_url: str = "",
    ) -> None:
        self.store = store
        self.directory = directory
        self.sender = sender
        self.links = links
        self.public_url = public_url
        self.signing = WebhookSecrets(store)
        # Steps that need no second look whether they are followed.
        self.known: dict[str, set[int]] = {}
        # Maps webhooks to the time when an open step may need its next notification.
        self.quiet: dict[str, dict[int, Moment]] = {}

    async def tick(self) -> float:
        """Looks at every webhook. Without webhooks, nothing else is read."""
        for webhook in await list_webhooks(self.store):
            await self.deliver_due(webhook)
        return self.every

    async def deliver_due(self, webhook: HumanWebhook) -> None:
        now = await self.store.now()
        state = await read_state(self.store, webhook)
        notices = WebhookDeliveries(self.store, webhook)
        await self.find_new(webhook, state, notices)
        sent = 0
        for id, (notice, version) in (await self.find_due(webhook, notices, now)).items():
            result = await self.send_due(webhook, notices, id, notice, version)
            if result is not None:
                sent += 1
                error = None if result.good else str(result)
                sent_at = await self.store.now() if result.good else state.last_sent_at
                state = replace(state, last_sent_at=sent_at, last_error=error)
            if sent >= MAX_SENT_PER_TICK:
                break
        await save_state(self.store, webhook, replace(state, read_until=now))

    async def find_new(
        self, webhook: HumanWebhook, state: HumanWebhookState, notices: WebhookDeliveries
    ) -> None:
        """Follows steps that were published since the last look, also those that ended already."""
        since = max(webhook.created_at, state.read_until - LOOK_BACK_MICROS)
        try:
            queue = await self.directory.get(webhook.tenant, webhook.scope, HUMAN)
        except NotFound:
            return
        known = self.known.setdefault(make_key(webhook), set())
        recent: set[int] = set()
        before: int | None = None
        while True:
            page = await self.store.find(Query((queue.id,), before=before, limit=PAGE_SIZE))
            new = [each.message.id for each in page if each.message.created_at >= since]
            recent.update(new)
            if len(new) < PAGE_SIZE:
                break
            before = new[-1]
        for id in sorted(recent - known):
            await notices.begin(id)
        self.known[make_key(webhook)] = recent

    async def find_due(
        self, webhook: HumanWebhook, notices: WebhookDeliveries, now: Moment
    ) -> dict[int, tuple[StepNotice, int]]:
        """Returns steps that ended, or for which a reminder or timeout is due."""
        found = {id: read for id, read in (await notices.read_open()).items()
                 if read[0].due_at <= now}  # fmt: skip
        ids, open_ids = list(found), set[int]()
        for start in range(0, len(ids), PAGE_SIZE):
            records = await self.store.get_many(ids[start : start + PAGE_SIZE])
            open_ids |= {each.message.id for each in records if not each.state.final}
        key = make_key(webhook)
        quiet = {id: at for id, at in self.quiet.get(key, {}).items() if id in open_ids}
        self.quiet[key] = quiet
        return {id: read for id, read in found.items() if quiet.get(id, 0) <= now}

    async def send_due(
        self,
        webhook: HumanWebhook,
        notices: WebhookDeliveries,
        id: int,
        notice: StepNotice,
        version: int,
    ) -> WebhookResult | None:
        """Sends the next notification about a step. Takes it first, so that one server sends it."""
        now = await self.store.now()
        try:
            found = await Inbox(self.store, self.directory, webhook.tenant).load(id, webhook.scope)
        except NotFound:
            await notices.finish(id, now)
            return None
        kind = human_notifications.find_kind(notice, found)
        if kind is None:
            self.quiet[make_key(webhook)][id] = find_next_look(found.step)
            return None
        if not await notices.save(id, replace(notice, due_at=now + SENDING_MICROS), version):
            return None
        result = await self.post(webhook, kind, found, f"{id}-{notice.sent}", now)
        if not result.good:
            name = webhook.name
            log.warning("human_notification_failed", webhook=name, id=id, response=str(result))
            await notices.save(id, human_notifications.note_failed(notice, now), version + 1)
        elif kind == HUMAN_DECIDED:
            await notices.finish(id, now)
        else:
            await notices.save(id, human_notifications.note_accepted(notice, found), version + 1)
        return result

    async def post(
        self, webhook: HumanWebhook, kind: str, found: InboxStep, number: str, now: Moment
    ) -> WebhookResult:
        links = {} if kind == HUMAN_DECIDED else self.make_links(webhook, found, now)
        body = {
            "type": kind,
            "timestamp": to_datetime(now),
            "text": human_notifications.make_text(kind, found),
            "data": human_notifications.describe_step(found, webhook.scope, links),
        }
        valid = (await self.signing.secrets(webhook.tenant)).valid
        id = f"human-{webhook.name}-{number}"
        return await self.sender.post(WebhookRequest(webhook.url, id, encode(body), valid))

    def make_links(self, webhook: HumanWebhook, found: InboxStep, now: Moment) -> dict[str, str]:
        """Makes a link for each person who is named, valid until the step times out."""
        if not webhook.links or not self.public_url:
            return {}
        step, until = found.step, min(found.step.times_out_at, now + MAX_LINK_MICROS)
        return {
            person: f"{self.public_url}/v1/decide/"
            + self.links.make(
                HumanLink(webhook.tenant, webhook.scope, step.id, person, until), step.spec
            )
            for person in human_notifications.list_people(found)
        }
