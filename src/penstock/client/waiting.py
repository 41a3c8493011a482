"""Steps and signals over HTTP."""

from urllib.parse import quote

from penstock.client.mapping import KINDS, FenceLedger
from penstock.client.transport import RemoteGroup, Transport
from penstock.errors import AlreadySettled, Busy, InvalidInput, LockLost
from penstock.model.message import Draft, Leased, Moment, State
from penstock.model.store_types import Answer, AnswerKind, Lock, Published
from penstock.model.waiting import (
    AwaitedOutcome,
    SignalAnswer,
    StepLog,
    StepRecord,
    StoredSignal,
    WaitPlan,
)
from penstock.retry_policies import REMOTE_SETTLE
from penstock.wire.consume import Settled
from penstock.wire.fields import encode_body, to_datetime, to_optional_moment
from penstock.wire.publish import make_publish_request
from penstock.wire.records import RedriveResponse
from penstock.wire.runs import (
    CallbackRequest,
    CallbackTokenView,
    ReadRunRequest,
    RunFacts,
    RunStep,
    RunView,
    SaveStepRequest,
    make_run_step,
    make_wait_request,
    read_run_outcome,
    read_run_signal,
    read_run_step,
    read_step_log,
)
from penstock.wire.waiting import NewSignal, SignalView, StepList, read_step

NO_TRANSACTION = "steps in your own transaction are not available over HTTP"


class RemoteWaits(RemoteGroup):
    """Implements `WaitsInterface` by HTTP calls, with the lock tokens of claimed messages."""

    def __init__(self, transport: Transport, ledger: FenceLedger) -> None:
        super().__init__(transport)
        self.tokens = ledger.tokens

    async def steps(self, reference: int | str, *, scope: str = "default") -> StepLog:
        found = await self.send(
            "GET", f"{message_path(reference)}/steps", gives=StepList, scope=scope
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
        stored = await self.send(
            "POST",
            f"{message_path(reference)}/signals/{quote(name, safe='')}",
            NewSignal(value, base64, key),
            gives=SignalView,
            scope=scope,
        )
        return SignalAnswer(int(stored.id), stored.duplicate, None, stored.state)

    async def redrive_from(
        self, reference: int | str, step: str, *, scope: str = "default"
    ) -> tuple[Published, list[StepRecord]]:
        forgotten = (await self.steps(reference, scope=scope)).steps
        first = next((each.position for each in forgotten if each.name == step), len(forgotten) + 1)
        answered = await self.send(
            "POST",
            f"{message_path(reference)}/redrive",
            {"from_step": step},
            gives=RedriveResponse,
            scope=scope,
        )
        return Published(int(answered.id)), [each for each in forgotten if each.position >= first]

    async def resume_held(self) -> bool:
        """Does nothing: the server resumes messages."""
        return False

    def resume_soon(self) -> None:
        """Does nothing: the server resumes waiting messages."""

    # Runs.

    async def read_steps(self, held: Lock | Leased) -> StepLog:
        return read_step_log(await self._read(held, "steps"))

    async def read_signals(self, held: Lock | Leased) -> list[StoredSignal]:
        found = await self._read(held, "signals")
        return [read_run_signal(signal, held.id) for signal in found.signals]

    async def read_outcomes(self, held: Lock | Leased) -> list[AwaitedOutcome]:
        return [read_run_outcome(each) for each in (await self._read(held, "outcomes")).outcomes]

    async def read_parents(self, held: Lock | Leased) -> list[AwaitedOutcome]:
        return [read_run_outcome(each) for each in (await self._read(held, "parents")).parents]

    async def _read(self, held: Lock | Leased, what: RunFacts) -> RunView:
        sent = ReadRunRequest(self._find_token(held), [what])
        return await self.send("POST", "/v1/run", sent, gives=RunView)

    async def save_step(
        self,
        held: Lock | Leased,
        step: StepRecord,
        *,
        draft: Draft | None = None,
        consumes: int | None = None,
        scope: str = "default",
    ) -> StepRecord:
        sent = SaveStepRequest(
            token=self._find_token(held),
            step=make_run_step(step),
            message=None if draft is None else make_publish_request(draft),
            consumes=None if consumes is None else str(consumes),
        )
        stored = await self.send(
            "POST", "/v1/step", sent, gives=RunStep, scope=scope, retry=REMOTE_SETTLE
        )
        return read_run_step(stored)

    def save_step_on(self, connection: object, held: Lock | Leased, step: StepRecord) -> StepRecord:
        raise InvalidInput(NO_TRANSACTION)

    async def asave_step_on(
        self, connection: object, held: Lock | Leased, step: StepRecord
    ) -> StepRecord:
        raise InvalidInput(NO_TRANSACTION)

    async def suspend(
        self, held: Lock | Leased, plan: WaitPlan, *, scope: str = "default"
    ) -> Answer:
        """Repeated after a lost response, the wait is found to be settled already."""
        sent = make_wait_request(self._find_token(held), plan)
        try:
            answered = await self.send("POST", "/v1/wait", sent, gives=Settled, scope=scope)
        except (AlreadySettled, LockLost, Busy) as error:
            answer = Answer(KINDS[error.code])
        else:
            state = None if answered.state is None else State(answered.state)
            answer = Answer(AnswerKind.DONE, state, due_at=to_optional_moment(answered.due_at))
        if answer.kind is not AnswerKind.BUSY:
            self.tokens.pop((held.id, held.fence), None)
        return answer

    async def make_token(self, held: Lock | Leased, name: str, expires_at: Moment) -> str:
        sent = CallbackRequest(self._find_token(held), name, to_datetime(expires_at))
        made = await self.send("POST", "/v1/run/callback", sent, gives=CallbackTokenView)
        return made.token

    def _find_token(self, held: Lock | Leased) -> str:
        token = self.tokens.get((held.id, held.fence))
        if token is None:
            raise LockLost(f"message {held.id} is not claimed by this client")
        return token


def message_path(reference: int | str) -> str:
    return f"/v1/messages/{quote(str(reference))}"
