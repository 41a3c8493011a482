"""The interface of waits: what workers, apps, servers and commands ask about waiting messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from penstock.model.message import Draft, Leased, Moment
    from penstock.model.store_types import Answer, Lock, Published
    from penstock.model.waiting import (
        AwaitedOutcome,
        SignalAnswer,
        StepLog,
        StepRecord,
        StoredSignal,
        WaitPlan,
    )


class WaitsInterface(Protocol):
    async def read_steps(self, held: Lock | Leased) -> StepLog: ...

    async def read_signals(self, held: Lock | Leased) -> list[StoredSignal]: ...

    async def read_outcomes(self, held: Lock | Leased) -> list[AwaitedOutcome]:
        """Returns how the messages that one waited for have ended, with their results."""

    async def read_parents(self, held: Lock | Leased) -> list[AwaitedOutcome]:
        """Returns how the messages that one waited for before its first delivery have ended."""

    async def save_step(
        self,
        held: Lock | Leased,
        step: StepRecord,
        *,
        draft: Draft | None = None,
        consumes: int | None = None,
        scope: str = "default",
    ) -> StepRecord: ...

    def save_step_on(self, connection: object, held: Lock | Leased, step: StepRecord) -> StepRecord:
        """Stores a step when the caller commits. Raises LockLost."""

    async def asave_step_on(
        self, connection: object, held: Lock | Leased, step: StepRecord
    ) -> StepRecord:
        """Does the same on an async connection."""

    async def suspend(
        self, held: Lock | Leased, plan: WaitPlan, *, scope: str = "default"
    ) -> Answer: ...

    async def make_token(self, held: Lock | Leased, name: str, expires_at: Moment) -> str: ...

    async def resume_held(self) -> bool:
        """Resumes messages whose wait is over. True if there were any."""

    def resume_soon(self) -> None:
        """Resumes messages in the background, without waiting for the scheduler."""

    async def steps(self, reference: int | str, *, scope: str = "default") -> StepLog: ...

    async def signal(
        self,
        reference: int | str,
        name: str,
        body: bytes = b"null",
        *,
        key: str | None = None,
        scope: str = "default",
    ) -> SignalAnswer: ...

    async def redrive_from(
        self, reference: int | str, step: str, *, scope: str = "default"
    ) -> tuple[Published, list[StepRecord]]: ...
