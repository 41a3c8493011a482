"""The operations complete and fail with inline artifacts.

Artifacts are stored before the message is settled, and removed if settling is refused.
"""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Sequence
from typing import TypeVar

from msgspec import UNSET, Struct

from penstock.artifacts.upload import Upload
from penstock.broker.artifacts import Artifacts
from penstock.errors import AlreadySettled, InvalidInput, PenstockError, StoreError
from penstock.http.context import RequestContext
from penstock.http.handlers.settle import SettleHandler
from penstock.http.lock_tokens import HeldLock
from penstock.model.queue import Queue
from penstock.model.store_types import Lock
from penstock.rules.validation import clip
from penstock.wire.consume import (
    CompleteRequest,
    FailRequest,
    InlineArtifact,
    Settled,
    SettleOutcomes,
)

Ending = TypeVar("Ending", bound=CompleteRequest | FailRequest)
# The message has ended, or may have: its artifacts stay.
MAYBE_DONE_ERRORS = (AlreadySettled, StoreError)


class AttachResult(Struct, frozen=True):
    """The lock of an item or its error, and the artifacts stored for it."""

    lock: HeldLock | PenstockError
    names: Sequence[str] = ()


class SettleWithArtifacts(SettleHandler[Ending]):
    async def settle(self, call: RequestContext, lock: HeldLock, sent: Ending) -> Settled:
        if not sent.artifacts:
            await check_result(call, lock, sent)
            return await super().settle(call, lock, sent)
        artifacts = call.broker.artifacts
        async with artifacts.turn(lock):
            names = await attach(artifacts, lock, sent.artifacts)
            try:
                return await super().settle(call, lock, sent)
            except PenstockError as error:
                await take_back(artifacts, [AttachResult(lock, names)], error)
                raise

    async def settle_many(
        self, call: RequestContext, read: Sequence[HeldLock | PenstockError], sent: Sequence[Ending]
    ) -> SettleOutcomes:
        if self.verb == "complete":
            read = await refuse_missing_results(call, read, sent)
        if not any(item.artifacts for item in sent):
            return await super().settle_many(call, read, sent)
        artifacts = call.broker.artifacts
        async with artifacts.turn(*(lock for lock in read if isinstance(lock, Lock))):
            tried = [await try_attach(artifacts, *each) for each in zip(read, sent, strict=True)]
            try:
                done = await super().settle_many(call, [each.lock for each in tried], sent)
            except PenstockError as error:
                await take_back(artifacts, tried, error)
                raise
            for each, item in zip(tried, done.items, strict=True):
                if item.error is not None and item.error.code != AlreadySettled.code:
                    await take_back(artifacts, [each])
        return done


async def check_result(call: RequestContext, lock: HeldLock, sent: Ending) -> None:
    """Refuses a completion without a result if the queue requires one."""
    if lacks_result(sent):
        queue = await call.broker.get_queue_by_id(lock.queue_id)
        if queue.settings.require_result:
            raise make_missing_result_error(queue)


async def refuse_missing_results(
    call: RequestContext, read: Sequence[HeldLock | PenstockError], sent: Sequence[Ending]
) -> Sequence[HeldLock | PenstockError]:
    """Does the same for a batch: a lock that is refused becomes its error."""
    ids = {lock.queue_id for lock in read if isinstance(lock, HeldLock)}
    queues = {id: await call.broker.get_queue_by_id(id) for id in ids}
    strict = {id: queue for id, queue in queues.items() if queue.settings.require_result}
    if not strict:
        return read
    return [
        make_missing_result_error(strict[lock.queue_id])
        if isinstance(lock, HeldLock) and lock.queue_id in strict and lacks_result(item)
        else lock
        for lock, item in zip(read, sent, strict=True)
    ]


def lacks_result(sent: CompleteRequest | FailRequest) -> bool:
    return (
        not isinstance(sent, FailRequest)
        and sent.result is UNSET
        and sent.result_base64 is None
        and not sent.artifacts
    )


def make_missing_result_error(queue: Queue) -> InvalidInput:
    return InvalidInput(
        f"queue {queue.name!r} requires a result; send result, result_base64 or artifacts"
    )


async def try_attach(
    artifacts: Artifacts, lock: HeldLock | PenstockError, sent: Ending
) -> AttachResult:
    if isinstance(lock, PenstockError) or not sent.artifacts:
        return AttachResult(lock)
    try:
        return AttachResult(lock, await attach(artifacts, lock, sent.artifacts))
    except PenstockError as error:
        return AttachResult(error)


async def attach(artifacts: Artifacts, lock: Lock, sent: Sequence[InlineArtifact]) -> list[str]:
    """Stores the artifacts and returns the new names. Writes nothing if the lock is lost."""
    contents = [(each.name, decode_content(each)) for each in sent]
    await artifacts.check_held(lock)
    uploads: list[Upload] = []
    try:
        for name, content in contents:
            uploads.append(await artifacts.service.receive(name, content))
        return await artifacts.put(lock, uploads)
    finally:
        await artifacts.service.discard(uploads)


def decode_content(attached: InlineArtifact) -> bytes:
    try:
        return b64decode(attached.content, validate=True)
    except (NotBase64, ValueError):
        raise InvalidInput(
            f"content of artifact {clip(attached.name)} is not valid base64"
        ) from None


async def take_back(
    artifacts: Artifacts, tried: Sequence[AttachResult], error: PenstockError | None = None
) -> None:
    if isinstance(error, MAYBE_DONE_ERRORS):
        return
    for each in tried:
        if isinstance(each.lock, Lock):
            await artifacts.take_back(each.lock, each.names)
