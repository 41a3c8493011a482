"""A broker whose every call is recorded as its caller saw it."""

from collections.abc import Sequence

from penstock.broker.local import Broker
from penstock.model.message import Draft, Leased, Nack, Settlement
from penstock.model.store_types import Answer as Told
from penstock.model.store_types import Completion, Extension, Published
from tests.checker import (
    Answer,
    Cancel,
    Claim,
    Publish,
    Recorder,
    Redrive,
    Settle,
)
from tests.faults.storm.bodies import read
from tests.faults.storm.recording import (
    VERBS,
    record,
    record_claimed,
    record_published,
    record_settled,
)

SECOND = 1_000_000


class Witness:
    def __init__(self, broker: Broker, recorder: Recorder) -> None:
        self.broker = broker
        self.recorder = recorder

    async def publish(self, draft: Draft) -> Published:
        calls = await self._publishes([draft])
        work = self.broker.publish(draft)
        return await record(self.recorder, calls, work, lambda one: [record_published(one)])

    async def publish_many(
        self, drafts: Sequence[Draft], *, atomic: bool, batch: str | None
    ) -> list[Published]:
        """`batch` names drafts of which all must enter or none."""
        calls = await self._publishes(drafts, batch)
        work = self.broker.publish_many(drafts, atomic=atomic)
        return await record(
            self.recorder, calls, work, lambda all: list(map(record_published, all))
        )

    async def _publishes(self, drafts: Sequence[Draft], batch: str | None = None) -> list[Publish]:
        now = await self.broker.store.now()
        return [
            Publish(
                read(draft.body)[0],
                draft.queue,
                draft.ordering_key,
                None if draft.dedup is None else draft.dedup.key,
                now + int(draft.delay * SECOND) if draft.delay else None,
                draft.priority,
                batch,
            )
            for draft in drafts
        ]

    async def claim(self, queue: str, limit: int, wait: float, begins: bool) -> list[Leased]:
        lease = (await self.broker.admin.queue(queue)).settings.lease
        consumer = self.recorder.process
        taken = await record(
            self.recorder,
            [Claim(queue, begins)],
            self.broker.claim(queue, consumer=consumer, limit=limit, wait=wait, begins=begins),
            lambda taken: [
                Answer("ok", claims=tuple(record_claimed(each, lease) for each in taken.messages))
            ],
        )
        return taken.messages

    async def complete(self, messages: Sequence[Leased]) -> list[Told]:
        """With the label as result, so that the dump can tell whether it was kept."""
        items = [Completion(each.id, each.fence, read(each.body)[0].encode()) for each in messages]
        calls = [Settle("complete", each.id, each.fence) for each in messages]
        return await record(self.recorder, calls, self.broker.complete_many(items), answers)

    async def settle(self, message: Leased, settlement: Settlement) -> Told:
        """The moment it is due is at least the delay away from now."""
        due_at: int | None = None
        if isinstance(settlement, Nack) and settlement.delay is not None:
            due_at = await self.broker.store.now() + int(settlement.delay * SECOND)
        (told,) = await record(
            self.recorder,
            [Settle(VERBS[settlement.verb], message.id, message.fence)],
            self.broker.settle_many([(message, settlement)]),
            lambda told: [record_settled(each, due_at) for each in told],
        )
        return told

    async def extend(self, messages: Sequence[Leased], lease: float) -> list[Told]:
        items = [Extension(each.id, each.fence, lease) for each in messages]
        calls = [Settle("extend", each.id, each.fence) for each in messages]
        return await record(self.recorder, calls, self.broker.extend_many(items), answers)

    async def begin(self, message: Leased) -> None:
        call = Settle("begin", message.id, message.fence)
        work = self.broker.begin(message)
        await record(self.recorder, [call], work, lambda told: [record_settled(told)])

    async def cancel(self, id: int, *, force: bool) -> None:
        work = self.broker.admin.cancel(id, force=force)
        await record(self.recorder, [Cancel(id, force)], work, lambda told: [record_settled(told)])

    async def redrive(self, id: int) -> None:
        work = self.broker.admin.redrive(id)
        await record(self.recorder, [Redrive(id)], work, lambda one: [record_published(one)])


def answers(told: Sequence[Told]) -> list[Answer]:
    return [record_settled(each) for each in told]
