"""The operations of durable steps, for workers over HTTP: save a step, wait, read a run."""

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.errors import InvalidInput
from penstock.http.context import RequestContext
from penstock.http.handlers.publish import refuse_unfit
from penstock.http.handlers.settle import make_settled, raise_unless_done, read_lock
from penstock.http.lock_tokens import HeldLock
from penstock.http.operations import OperationTable
from penstock.model.message import PLAIN, Draft
from penstock.model.queue import HUMAN
from penstock.model.store_types import Lock
from penstock.model.waiting import WaitPlan
from penstock.rules.access import Right
from penstock.rules.waiting import check_signal
from penstock.wire.consume import Settled
from penstock.wire.fields import to_datetime, to_moment
from penstock.wire.publish import PublishRequest, make_draft
from penstock.wire.runs import (
    CallbackRequest,
    CallbackTokenView,
    ReadRunRequest,
    RunAfter,
    RunHold,
    RunStep,
    RunView,
    SaveStepRequest,
    WaitRequestBody,
    make_run_outcome,
    make_run_signal,
    make_run_step,
    read_run_hold,
    read_run_step,
    read_wait_reason,
)

runs = OperationTable("waiting")
TOKEN = "7.3.2.5d41402abc4b2a76b9719d911017c592ab01"


@runs.add(
    "POST", "/v1/step", "Store a durable step", RunStep, takes=SaveStepRequest,
    right=Right.CONSUME,
    example={"token": TOKEN, "step": {"name": "charge", "position": 1, "result": {"paid": 12}}},
    answer={
        "name": "charge", "position": 1, "result": {"paid": 12},
        "at": "2026-11-16T09:00:02.000000Z",
    },
)  # fmt: skip
async def save_step(call: RequestContext, sent: SaveStepRequest) -> RunStep:
    """Returns the step as stored: a step that was stored before stays as it was."""
    lock = await read_lock(call, sent.token)
    children = await adopt(call, lock, [] if sent.message is None else [sent.message])
    stored = await call.broker.waits.save_step(
        lock,
        read_run_step(sent.step),
        draft=children[0] if children else None,
        consumes=None if sent.consumes is None else int(sent.consumes),
        scope=call.scope,
    )
    return make_run_step(stored)


@runs.add(
    "POST", "/v1/wait", "Suspend a message", Settled, takes=WaitRequestBody,
    right=Right.CONSUME,
    example={
        "token": TOKEN, "reason": "sleep", "holds": [{"kind": "moment", "delay": 86400}],
        "steps": [{"name": "sleep", "kind": "sleep", "position": 2, "done": False}],
    },
    answer={"id": "7", "state": "scheduled", "due_at": "2026-11-17T09:00:02.000000Z"},
)  # fmt: skip
async def wait(call: RequestContext, sent: WaitRequestBody) -> Settled:
    """Ends the delivery. The message is delivered again when all holds have ended."""
    lock = await read_lock(call, sent.token)
    for hold in sent.holds:
        await check_hold(call, lock, hold, len(sent.children))
    step = sent.children_step
    plan = WaitPlan(
        reason=read_wait_reason(sent),
        holds=tuple(read_run_hold(hold) for hold in sent.holds),
        steps=tuple(read_run_step(each) for each in sent.steps),
        children=tuple(await adopt(call, lock, sent.children)),
        children_step=None if step is None else read_run_step(step),
    )
    answer = await call.broker.waits.suspend(lock, plan, scope=call.scope)
    raise_unless_done(answer, lock)
    call.service.wake_tail()
    return make_settled(Settled, lock, answer)


@runs.add(
    "POST", "/v1/run", "Read the stored state of a run", RunView,
    takes=ReadRunRequest, right=Right.CONSUME, scoped=False,
    example={"token": TOKEN, "include": ["steps", "signals"]},
    answer={"now": "2026-11-16T09:00:02.000000Z"},
)  # fmt: skip
async def read_run(call: RequestContext, sent: ReadRunRequest) -> RunView:
    """A delivery with `has_steps` has stored steps. Values are not masked: the caller may consume
    the message."""
    lock = await read_lock(call, sent.token)
    waits, wanted = call.broker.waits, set(sent.include)
    found = await waits.read_steps(lock)
    signals = await waits.read_signals(lock) if "signals" in wanted else []
    outcomes = await waits.read_outcomes(lock) if "outcomes" in wanted else []
    parents = await waits.read_parents(lock) if "parents" in wanted else []
    return RunView(
        to_datetime(found.now),
        [make_run_step(step) for step in found.steps if "steps" in wanted],
        [make_run_signal(signal) for signal in signals],
        [make_run_outcome(outcome) for outcome in outcomes],
        [make_run_outcome(outcome) for outcome in parents],
    )


@runs.add(
    "POST", "/v1/run/callback", "Create the token of a callback URL", CallbackTokenView,
    takes=CallbackRequest, right=Right.CONSUME, scoped=False,
    example={"token": TOKEN, "name": "paid", "expires_at": "2026-11-23T09:00:00Z"},
)  # fmt: skip
async def make_callback(call: RequestContext, sent: CallbackRequest) -> CallbackTokenView:
    """Nothing is stored: the same name and expiry give the same token."""
    lock = await read_lock(call, sent.token)
    until = to_moment(sent.expires_at)
    return CallbackTokenView(await call.broker.waits.make_token(lock, sent.name, until))


async def adopt(
    call: RequestContext, lock: HeldLock, sent: Sequence[PublishRequest]
) -> list[Draft]:
    """Checks the children of a run and names its message as their parent."""
    if not sent:
        return []
    (lease,) = await call.broker.leases([Lock(lock.id, lock.fence)])
    meta = PLAIN if lease is None else lease.meta
    lineage = {"parent_id": lock.id, "hops": meta.hops + 1, "path": meta.path}
    drafts = [replace(make_draft(each, meta.publisher), **lineage) for each in sent]
    for draft in drafts:
        if draft.queue == HUMAN:
            call.check(Right.PUBLISH, HUMAN)
        else:
            refuse_unfit(call, draft)
    return drafts


async def check_hold(call: RequestContext, lock: HeldLock, hold: RunHold, children: int) -> None:
    """Refuses a hold that could not end, or refers to other messages than children."""
    if hold.kind == "signal":
        check_signal(hold.name, b"", None)
    if hold.kind == "moment" and hold.delay is None and hold.due_at is None:
        raise InvalidInput("a hold of kind 'moment' needs delay or due_at")
    if (hold.kind == "after") != (hold.after is not None):
        raise InvalidInput("`after` is required for kind 'after' and not allowed for other kinds")
    if hold.after is not None:
        check_after(hold.after, children)
        await check_children(call, lock, hold.after.ids)


def check_after(after: RunAfter, children: int) -> None:
    if any(place >= children for place in after.children):
        raise InvalidInput(f"after.children refers to a child that is not among the {children}")
    if after.need > max(1, len(after.children) + len(after.ids)):
        raise InvalidInput(f"after.need is {after.need}; it must not exceed the number of messages")


async def check_children(call: RequestContext, lock: HeldLock, ids: Sequence[str]) -> None:
    """Allows only children that the message has waited for."""
    own = {each.id for each in await call.broker.waits.read_outcomes(lock)} if ids else set()
    for id in ids:
        if int(id) not in own:
            raise InvalidInput(f"message {id} is not a child of message {lock.id}")
