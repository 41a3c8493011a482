"""The part of the Store protocol about messages that wait: holds, steps, signals, edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from penstock.model.waiting import (
    MAX_RESUME_BATCH,
)

if TYPE_CHECKING:
    from penstock.model.changes import Change, Changed
    from penstock.model.store_types import Answer
    from penstock.model.waiting import (
        Edge,
        HeldEnd,
        ResumeResult,
        SignalAnswer,
        SignalDraft,
        StepLog,
        StepRecord,
        StepSave,
        StepSaved,
        StoredHold,
        StoredSignal,
        Wait,
        WaitFacts,
    )


class StoreWaiting(Protocol):
    async def wait(self, asked: Wait) -> Answer:
        """Ends a delivery until its holds have ended. Raises ChildRefused; nothing is written."""

    async def wait_facts(self, id: int, fence: int) -> WaitFacts:
        """Returns what bounds the waits of a claimed message."""

    async def save_steps(self, items: Sequence[StepSave]) -> list[StepSaved]:
        """Stores steps, each if its fence holds the lease. Raises ChildRefused."""

    def save_step_on(self, connection: object, item: StepSave) -> StepSaved:
        """Stores a step when the caller commits, without an entry or a signal."""

    async def asave_step_on(self, connection: object, item: StepSave) -> StepSaved:
        """Does the same on an async connection."""

    def advance_on(self, connection: object, change: Change) -> Changed | None:
        """Advances in the open transaction of the caller's connection: starts a workflow there."""

    async def aadvance_on(self, connection: object, change: Change) -> Changed | None:
        """Does the same on an async connection."""

    async def steps(self, id: int) -> StepLog:
        """Returns the step records of a message, in order."""

    async def child_records(self, ids: Sequence[int]) -> list[StepRecord]:
        """Returns the step records of messages that name the messages they published."""

    async def forget_steps(self, id: int, position: int) -> list[StepRecord]:
        """Deletes and returns the records of a dead message from a position on."""

    async def signal(self, draft: SignalDraft) -> SignalAnswer:
        """Stores a signal for an unfinished message. The answer has an error code otherwise."""

    async def signals(self, id: int) -> list[StoredSignal]:
        """Lists the signals of a message, oldest first."""

    async def resume_held(self, limit: int = MAX_RESUME_BATCH) -> ResumeResult:
        """Looks at held messages that were nudged or are due, and resumes those it can.

        With nothing to do it only reads.
        """

    async def nudge_missed(self, after: int = 0, limit: int = MAX_RESUME_BATCH) -> int | None:
        """Nudges held messages that missed the end of a message they wait for.

        Looks at those with ids after `after`. Returns the id to go on from, None at the end.
        """

    async def end_held(self, items: Sequence[HeldEnd]) -> list[Answer]:
        """Ends held messages from outside. Of several ends, the first counts."""

    async def holds(self, ids: Sequence[int]) -> list[StoredHold]:
        """Lists what held messages wait for."""

    async def awaited_results(self, id: int) -> dict[int, bytes]:
        """Returns the results of the messages that one waited for. They are kept until it ends."""

    async def edges(self, id: int) -> list[Edge]:
        """Lists the messages that one waits or has waited for."""

    async def count_waits(self) -> int:
        """Counts unfinished messages with holds, stored steps or signals."""
