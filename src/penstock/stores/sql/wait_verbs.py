"""The verbs of waiting messages, the same for all SQL stores."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.model.store_types import Answer
from penstock.model.waiting import (
    MAX_RESUME_BATCH,
    Edge,
    HeldEnd,
    ResumeResult,
    SignalAnswer,
    SignalDraft,
    StepRecord,
    StoredHold,
    Wait,
    WaitFacts,
)
from penstock.stores.sql import results, resume, steps, waiting
from penstock.stores.sql.dialect import Database
from penstock.stores.sql.documents import with_audit

if TYPE_CHECKING:
    from penstock.stores.sql.store import HotVerbs


class WaitVerbs:
    def __init__(self, database: Database, hot: "HotVerbs") -> None:
        self.database = database
        self.hot = hot

    async def wait(self, asked: Wait) -> Answer:
        return await self.database.write(waiting.wait, asked, self.hot.publish_inside)

    async def wait_facts(self, id: int, fence: int) -> WaitFacts:
        return await self.database.look(steps.wait_facts, id, fence)

    async def forget_steps(self, id: int, position: int) -> list[StepRecord]:
        return await self.database.write(with_audit(steps.forget_steps), id, position)

    async def signal(self, draft: SignalDraft) -> SignalAnswer:
        if draft.key is None and (answer := await self.hot.signal_held(draft)) is not None:
            return answer
        return await self.database.write(steps.signal, draft)

    async def resume_held(self, limit: int = MAX_RESUME_BATCH) -> ResumeResult:
        now, nudged, next_at = await self.hot.look_when()
        if not nudged and (next_at is None or next_at > now):
            return ResumeResult(0, 0, now, next_at)
        return await self.database.write(resume.resume_held, limit)

    async def nudge_missed(self, after: int = 0, limit: int = MAX_RESUME_BATCH) -> int | None:
        if not await self.database.look(resume.has_afters, after):
            return None
        return await self.database.write(resume.nudge_missed, after, limit)

    async def end_held(self, items: Sequence[HeldEnd]) -> list[Answer]:
        return await self.database.write(with_audit(waiting.end_held), items)

    async def child_records(self, ids: Sequence[int]) -> list[StepRecord]:
        return await self.database.look(steps.child_records, ids) if ids else []

    async def holds(self, ids: Sequence[int]) -> list[StoredHold]:
        return await self.database.look(waiting.holds, ids)

    async def awaited_results(self, id: int) -> dict[int, bytes]:
        return await self.database.look(results.awaited_results, id)

    async def edges(self, id: int) -> list[Edge]:
        return await self.database.look(waiting.edges, id)
