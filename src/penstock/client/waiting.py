"""Steps and signals over HTTP."""

from typing import NoReturn
from urllib.parse import quote

from penstock.client.transport import Transport
from penstock.errors import InvalidInput
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
from penstock.wire.fields import encode_body
from penstock.wire.records import RedriveResponse
from penstock.wire.waiting import NewSignal, SignalView, StepViews, read_step

NO_STEPS = "durable steps need a worker that is connected to the store, not to a server"


class RemoteWaits:
    """Implements `WaitsInterface` by HTTP calls. Runs with durable steps need the store."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def steps(self, reference: int | str, *, scope: str = "default") -> StepLog:
        found = await self.transport.send(
            "GET", f"{message_path(reference)}/steps", gives=StepViews, query={"scope": scope}
        )
        steps = [read_step(view, place) for place, view in enumerate(found.steps, 1)]
        return StepLog(steps, 0)

    async def signal(
        self,
        reference: int | str,
        name: str,
        body: bytes = b"null",
        *,
        key: str | None = None,
        scope: str = "default",
    ) -> SignalAnswer:
        value, base64 = encode_body(body)
        stored = await self.transport.send(
            "POST",
            f"{message_path(reference)}/signals/{quote(name, safe='')}",
            NewSignal(value, base64, key),
            gives=SignalView,
            query={"scope": scope},
        )
        return SignalAnswer(int(stored.id), stored.duplicate, None, stored.state)

    async def redrive_from(
        self, reference: int | str, step: str, *, scope: str = "default"
    ) -> tuple[Published, list[StepRecord]]:
        forgotten = (await self.steps(reference, scope=scope)).steps
        first = next((each.position for each in forgotten if each.name == step), len(forgotten) + 1)
        told = await self.transport.send(
            "POST",
            f"{message_path(reference)}/redrive",
            {"from_step": step},
            gives=RedriveResponse,
            query={"scope": scope},
        )
        return Published(int(told.id)), [each for each in forgotten if each.position >= first]

    def look_soon(self) -> None:
        """Does nothing: the server resumes waiting messages."""

    async def read_steps(self, id: int) -> StepLog:
        refuse()

    async def read_signals(self, id: int) -> list[StoredSignal]:
        refuse()

    async def read_outcomes(self, id: int) -> list[AwaitedOutcome]:
        refuse()

    async def read_parents(self, id: int) -> list[AwaitedOutcome]:
        refuse()

    async def save_step(
        self,
        held: Lock | Leased,
        step: StepRecord,
        *,
        draft: Draft | None = None,
        consumes: int | None = None,
        scope: str = "default",
    ) -> StepRecord:
        refuse()

    async def suspend(
        self, held: Lock | Leased, plan: WaitPlan, *, scope: str = "default"
    ) -> Answer:
        refuse()

    async def make_token(self, id: int, name: str, expires_at: Moment) -> str:
        refuse()


def refuse() -> NoReturn:
    raise InvalidInput(NO_STEPS)


def message_path(reference: int | str) -> str:
    return f"/v1/messages/{quote(str(reference))}"
