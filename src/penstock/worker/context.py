"""What a handler knows of its run, and what it may say of it."""

import asyncio
from math import inf, isfinite
from typing import Protocol

from msgspec import Struct

from penstock.artifacts.upload import Content, Upload, check_content
from penstock.errors import InvalidInput, InvalidState
from penstock.model import message
from penstock.model.message import PLAIN, Leased, Settlement
from penstock.model.store_types import Completion
from penstock.rules.drafts import check_settlement
from penstock.rules.validation import replace_surrogates
from penstock.worker.policy import Cancelled


class RunReporter(Protocol):
    """Where a run is heard."""

    def note(self, context: "Context") -> None:
        """It has got on."""

    def complete_on(self, connection: object, item: Completion) -> None: ...

    async def acomplete_on(self, connection: object, item: Completion) -> None: ...

    def spool(self, context: "Context", name: str, content: Content) -> Upload | None:
        """A copy of the file, aside."""


class Context(Struct, eq=False, gc=False):
    """One run of one message. Its methods may be called from any thread."""

    delivery: Leased
    queue: str
    _reporter: "RunReporter"
    # For the worker: when its lease is to be renewed and for how long, how long it may run and
    # until when, and whether it has ended.
    lease: float = 0.0
    renew_at: float = inf
    limit: float | None = None
    until: float = inf
    over: bool = False
    # By the monotonic clock, when the run began; 0 if it has not. How long it took, once over.
    started_at: float = 0.0
    seconds: float = 0.0
    # The store knows that it runs.
    begun: bool = False
    # Somebody asked for the run to stop; the lease was lost to another consumer.
    cancelled: bool = False
    lost: bool = False
    settled: bool = False
    # Its completion lies in a transaction of the handler's own.
    inside: bool = False
    settlement: Settlement | None = None
    attached: list[Upload] | None = None
    _note: tuple[float, str | None] | None = None

    @property
    def id(self) -> int:
        return self.delivery.id

    @property
    def attempt(self) -> int:
        """The number of this run: 1 for the first."""
        return self.delivery.attempts + 1

    @property
    def fence(self) -> int:
        """Grows with every claim: a fencing number for systems you write to."""
        return self.delivery.fence

    @property
    def headers(self) -> dict[str, str]:
        return self.delivery.meta.headers or {}

    @property
    def correlation_id(self) -> str | None:
        return self.delivery.meta.correlation_id

    def progress(self, done: float, total: float = 100.0, note: str | None = None) -> None:
        """Shown to whoever looks at the message; written soon, not at once."""
        self._note = (
            compute_percent(done, total),
            None if note is None else replace_surrogates(note),
        )
        self._reporter.note(self)

    def heartbeat(self) -> None:
        """The worker renews leases by itself; this only checks that this one still stands."""
        self.raise_if_cancelled()

    def raise_if_cancelled(self) -> None:
        """Stops the run if a cancel was requested or the lease was lost."""
        if self.cancelled or self.lost:
            raise Cancelled("cancelled" if self.cancelled else "the lease was lost")

    def attach(self, name: str, content: Content) -> None:
        """A file for whoever reads the result: bytes, or a path that is copied now. Kept before the
        message is completed; of a run that does not complete or fail it, nobody sees any."""
        if self.inside:
            raise InvalidState("files cannot be attached after complete_in")
        upload = self._reporter.spool(self, name, content)
        if upload is not None:
            self.attached = [*(self.attached or ()), upload]

    async def aattach(self, name: str, content: Content) -> None:
        """The same for coroutines, which must not wait for a disk."""
        await asyncio.to_thread(self.attach, name, content)

    def complete_in(self, connection: object) -> None:
        """Completes the message in your own transaction: what you do there and its end are one.

        If it is rolled back, the message is nacked with reason ROLLED_BACK.
        """
        self._refuse_attached()
        self._reporter.complete_on(connection, self.make_completion(None))
        self.inside = True

    async def acomplete_in(self, connection: object) -> None:
        """The same for a connection that is waited for."""
        self._refuse_attached()
        await self._reporter.acomplete_on(connection, self.make_completion(None))
        self.inside = True

    def _refuse_attached(self) -> None:
        if self.attached:
            raise InvalidState("complete_in cannot be used after files were attached")

    def ack(self) -> None:
        self._settle(None)

    def nack(self, delay: float | None = None, error: str | None = None) -> None:
        self._settle(message.Nack(error, delay))

    def reject(self, error: str | None = None) -> None:
        self._settle(message.SettleReject(error))

    def _settle(self, settlement: Settlement | None) -> None:
        """The first call wins; later ones change nothing."""
        checked = None if settlement is None else check_settlement(settlement)
        if not self.settled:
            self.settlement = checked
            self.settled = True

    def make_completion(self, result: bytes | None) -> Completion:
        return Completion(self.delivery.id, self.delivery.fence, result)

    def take_note(self) -> tuple[float, str | None] | None:
        note, self._note = self._note, None
        return note


def compute_percent(done: float, total: float) -> float:
    try:
        share = 100.0 * done / total
    except (TypeError, ZeroDivisionError, OverflowError):
        share = inf
    if not isfinite(share):
        raise InvalidInput(f"progress {done!r} of {total!r} is not a valid share")
    return min(100.0, max(0.0, share))


def make_local_context(type: str, queue: str) -> Context:
    """For a task that is called, not enqueued: the one attempt of no message."""
    delivery = Leased(0, 0, type, 0, 0, b"", PLAIN, 0, 0, 1, 0, 0)
    return Context(delivery, queue, NullReporter())


class NullReporter:
    """Listens to a run in place: there is no message to complete."""

    def note(self, context: Context) -> None: ...

    def complete_on(self, connection: object, item: Completion) -> None: ...

    async def acomplete_on(self, connection: object, item: Completion) -> None: ...

    def spool(self, context: Context, name: str, content: Content) -> Upload | None:
        check_content(name, content)
        return None
