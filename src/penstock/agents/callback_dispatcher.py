"""Sends callbacks: posts each message of the callback queue to its URL."""

import asyncio
from typing import Self

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from penstock.artifacts.rules import find_visible_prefix
from penstock.artifacts.service import ArtifactService
from penstock.broker.local import Broker
from penstock.broker.queue_cache import QueueCache
from penstock.broker.webhook_secrets import WebhookSecrets
from penstock.errors import Archived, PenstockError
from penstock.model.message import Fail, HistoryRow, Leased, Nack, Record, Release, Settlement
from penstock.model.queue import CALLBACK, Queue, QueueState
from penstock.model.store_types import Claim
from penstock.rules.callbacks import Ended, decode
from penstock.store import Store
from penstock.webhooks.sender import WebhookRequest, WebhookResult, WebhookSender
from penstock.wire.consume import ArtifactView, make_artifact_view
from penstock.wire.webhooks import make_callback

# Per server.
MAX_IN_FLIGHT = 32
# Poll intervals: with all slots in use, and with callbacks in flight or until MAX_POLL_INTERVAL_S
# after the last one.
FULL_POLL_INTERVAL_S, MIN_POLL_INTERVAL_S, MAX_POLL_INTERVAL_S = 0.01, 0.1, 30.0
encode = msgspec.json.Encoder().encode
log: FilteringBoundLogger = structlog.get_logger()


class CallbackLost(Exception):
    """The callback cannot be sent, now or later."""


class CallbackDispatcher:
    name = "callback_dispatcher"
    every = 1.0

    def __init__(
        self,
        store: Store,
        directory: QueueCache,
        sender: WebhookSender,
        by: str,
        artifact_service: ArtifactService | None = None,
    ) -> None:
        self.store = store
        self.directory = directory
        self.broker = Broker(store, directory=directory)
        self.sender = sender
        self.artifact_service = artifact_service
        self.signing = WebhookSecrets(store)
        self.by = by
        self.sending: set[asyncio.Task[None]] = set()
        self.busy_until = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Releases the callbacks in flight, for another server or the next start."""
        for task in self.sending:
            task.cancel()
        if self.sending:
            await asyncio.wait(self.sending)

    async def tick(self) -> float:
        queue = await self.directory.get_by_name("default", "default", CALLBACK)
        room = MAX_IN_FLIGHT - len(self.sending)
        if room and is_serving(queue):
            claim = Claim((queue.id,), self.by, room, queue.settings.lease)
            for message in (await self.store.claim(claim)).messages:
                self.begin(message)
        return self.wait()

    def wait(self) -> float:
        now = asyncio.get_running_loop().time()
        if self.sending:
            self.busy_until = now + MAX_POLL_INTERVAL_S
        if len(self.sending) == MAX_IN_FLIGHT:
            return FULL_POLL_INTERVAL_S
        return MIN_POLL_INTERVAL_S if now < self.busy_until else self.every

    def begin(self, message: Leased) -> None:
        task = asyncio.create_task(self.deliver(message), name=f"callback {message.id}")
        self.sending.add(task)
        task.add_done_callback(self.end)

    def end(self, task: "asyncio.Task[None]") -> None:
        self.sending.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # It is retried when its lease expires.
            log.error("callback_failed", error=str(error), exc_info=error)

    async def deliver(self, message: Leased) -> None:
        try:
            settlement = await self.attempt(message)
        except asyncio.CancelledError:
            settlement = Release()
        try:
            if settlement is None:
                await self.broker.complete(message)
            else:
                await self.broker.settle(message, settlement)
        except PenstockError as error:
            log.warning("callback_not_settled", id=message.id, error=str(error))

    async def attempt(self, message: Leased) -> Settlement | None:
        """Sends a callback. Returns None if it was accepted."""
        try:
            request = await self.make_request(message)
        except CallbackLost as error:
            return Fail(str(error))
        except PenstockError as error:
            return Nack(f"not sent: {error}")
        return choose_settlement(await self.sender.post(request))

    async def make_request(self, message: Leased) -> WebhookRequest:
        """Builds the request from the current state of the message."""
        ended = parse_body(message)
        record = await self.load_record(ended)
        if (url := record.message.meta.callback) is None:
            raise CallbackLost(f"message {ended.id} has no callback")
        row = find_end(record, ended)
        queue = await self.directory.get_by_id(record.message.queue_id)
        result = await self.load_result(record, row)
        artifacts = await self.list_artifacts(record, queue.scope.tenant)
        body = encode(make_callback(record, row, queue, result, artifacts))
        secrets = await self.signing.secrets(queue.scope.tenant)
        return WebhookRequest(url, await self.signing.make_id(message.id), body, secrets.valid)

    async def load_record(self, ended: Ended) -> Record:
        try:
            record = await self.store.get(int(ended.id))
        except Archived as error:
            raise CallbackLost(str(error)) from None
        if record is None:
            raise CallbackLost(f"no message with id {ended.id}")
        return record

    async def list_artifacts(self, record: Record, tenant: str) -> list[ArtifactView]:
        service, prefix = self.artifact_service, find_visible_prefix(record, tenant)
        if service is None or prefix is None:
            return []
        files = await service.run(service.storage.files, prefix)
        return [make_artifact_view(each.name, each.size) for each in files]

    async def load_result(self, record: Record, row: HistoryRow) -> bytes | None:
        return await self.store.result(record.message.id) if row.state == "completed" else None


def parse_body(message: Leased) -> Ended:
    try:
        ended = decode(message.body)
        int(ended.id)
    except (msgspec.DecodeError, ValueError):
        raise CallbackLost("its body does not name the message that ended") from None
    return ended


def find_end(record: Record, ended: Ended) -> HistoryRow:
    """Returns the last history row with that state."""
    for row in reversed(record.timeline):
        if row.state is ended.state:
            return row
    raise CallbackLost(f"message {ended.id} was never {ended.state}")


def choose_settlement(result: WebhookResult) -> Settlement | None:
    if result.good:
        return None
    return Fail(str(result)) if result.gone else Nack(str(result))


def is_serving(queue: Queue) -> bool:
    """True if the queue is active. A paused scope must not stop other tenants' callbacks."""
    return queue.state is QueueState.ACTIVE
