"""Explains why a message does not run, or has not finished: causes in order of importance."""

from collections.abc import Iterator

from penstock.model.explain import Cause, CauseCode, Evidence, ExplainSnapshot
from penstock.model.message import MICROS_PER_SECOND, NEVER, Moment, Record, State, Verb
from penstock.model.queue import Queue, QueueState
from penstock.model.store_types import WorkerInfo
from penstock.model.waiting import StoredHold
from penstock.rules.anomalies import get_patience
from penstock.rules.items import find_successor
from penstock.rules.lifecycle import CODE_CHANGED
from penstock.rules.plurals import format_count

# Agents that make messages runnable look every second; more than this is a stall.
AGENTS_LATE_S = 10
# Replaces the id of a message that the caller may not read.
ANOTHER = "another message"


def explain(situation: ExplainSnapshot) -> list[Cause]:
    """Returns every cause that applies, the one to act on first."""
    record = situation.record
    if record.state.final:
        return [explain_end(record)]
    match record.state:
        case State.DEAD:
            return [explain_dead(record)]
        case State.CLAIMED:
            return list(explain_claimed(situation))
        case State.SCHEDULED:
            return [*explain_switches(situation.queue), *explain_scheduled(situation)]
    return list(explain_ready(situation))


def explain_end(record: Record) -> Cause:
    last = record.timeline[-1]
    if (successor := find_successor(record)) is not None:
        return Cause(
            CauseCode.ENDED, f"it was {record.reason}: message {successor} replaces it",
            f"see message {successor}",
            {"state": record.state, "at": last.at, "reason": record.reason, "by": successor},
        )  # fmt: skip
    reason = f": {record.reason}" if record.reason else ""
    error = f" ({first_line(record.error)})" if record.error else ""
    return Cause(
        CauseCode.ENDED,
        f"it ended as {record.state}{reason}{error}",
        "redrive it to run it again as a new message",
        {"state": record.state, "at": last.at, "consumer": last.consumer, "reason": record.reason},
    )


def explain_dead(record: Record) -> Cause:
    error = f": {first_line(record.error)}" if record.error else ""
    return Cause(
        CauseCode.DEAD,
        f"it is a dead letter after {format_count(record.attempts, 'attempt')}"
        f" ({record.reason or 'dead'}){error}",
        "fix the cause, then redrive it",
        {"reason": record.reason, "attempts": record.attempts, "deliveries": record.deliveries},
    )


def explain_claimed(situation: ExplainSnapshot) -> Iterator[Cause]:
    record = situation.record
    if record.cancel_requested:
        yield Cause(
            CauseCode.CANCEL_REQUESTED,
            f"a cancel was requested, and {record.consumer} has not seen it yet",
            "wait for its next heartbeat, or cancel with force",
        )
    held: Evidence = {
        "consumer": record.consumer,
        "claimed_at": record.claimed_at,
        "lease_until": record.lease_until,
        "percent": record.percent,
        "note": record.note,
    }
    left = ((record.lease_until or 0) - situation.now) / MICROS_PER_SECOND
    lease = f"its lease ends in {format_seconds(left)} unless it is extended"
    if left < 0:
        yield Cause(
            CauseCode.LEASE_EXPIRED,
            f"the lease of {record.consumer} has expired, and no agent has reclaimed it yet",
            "make sure that a worker or a server runs the agents",
            held,
        )
    elif record.begun_at is None and situation.now - (record.claimed_at or 0) > MICROS_PER_SECOND:
        yield Cause(
            CauseCode.FETCHED,
            f"{record.consumer} has claimed it, but has not started it yet; {lease}",
            "wait; the worker runs it when a slot is free, or returns it",
            held,
        )
    else:
        done = f", {record.percent:g} % done" if record.percent is not None else ""
        note = f" ({first_line(record.note)})" if record.note else ""
        text = f"{record.consumer} runs it{done}{note}; {lease}"
        yield Cause(CauseCode.RUNNING, text, "wait", held)


def explain_switches(queue: Queue) -> Iterator[Cause]:
    """A message that cannot be claimed now, whatever else is true."""
    name = queue.name
    if queue.scope.archived:
        yield Cause(
            CauseCode.SCOPE_ARCHIVED,
            f"scope {queue.scope.name!r} is archived",
            f"unarchive it: penstock scope unarchive {queue.scope.name}",
        )
    elif queue.scope.paused:
        yield Cause(
            CauseCode.SCOPE_PAUSED,
            f"scope {queue.scope.name!r} is paused",
            f"resume it: penstock scope resume {queue.scope.name}",
        )
    if queue.state is QueueState.PAUSED:
        yield Cause(
            CauseCode.QUEUE_PAUSED,
            f"queue {name!r} is paused",
            f"resume it: penstock queue resume {name}",
        )
    if queue.state is QueueState.ARCHIVED:
        yield Cause(
            CauseCode.QUEUE_ARCHIVED,
            f"queue {name!r} is archived",
            f"make it active again: penstock queue resume {name}",
        )


def explain_scheduled(situation: ExplainSnapshot) -> Iterator[Cause]:
    record, now = situation.record, situation.now
    if situation.holds:
        yield from (explain_hold(situation, hold) for hold in situation.holds)
        return
    if record.due_at is None:
        yield explain_key(situation)
        return
    evidence: Evidence = {"due_at": record.due_at}
    if record.due_at <= now:
        yield explain_agents(situation, evidence)
        return
    wait = f"in {format_seconds((record.due_at - now) / MICROS_PER_SECOND)}"
    last = record.timeline[-1] if record.timeline else None
    if last is not None and last.verb is Verb.PARK:
        yield explain_park(record, wait, evidence | {"reason": record.reason})
    elif last is not None and last.verb is not Verb.REDRIVE:
        error = f" after: {first_line(record.error)}" if record.error else ""
        yield Cause(
            CauseCode.RETRY,
            f"attempt {record.attempts + 1} is due {wait}{error}",
            "wait for the backoff",
            evidence | {"attempts": record.attempts, "error": record.error},
        )
    else:
        yield Cause(CauseCode.SCHEDULED, f"it is scheduled to run {wait}", "wait", evidence)


def explain_park(record: Record, wait: str, evidence: Evidence) -> Cause:
    type_ = record.message.type
    text = f"no worker that claimed it knows the type {type_!r}"
    remedy = "start a worker that has this task"
    if record.reason == CODE_CHANGED:
        text = f"its stored steps do not fit the code of the task {type_!r} any more"
        remedy = "start a worker with the code that it began with, or undo the change of its steps"
    return Cause(CauseCode.PARKED, f"{text}; offered again {wait}", remedy, evidence)


def explain_hold(situation: ExplainSnapshot, hold: StoredHold) -> Cause:
    """Says what a waiting message waits for, and until when."""
    id, due_at = situation.record.message.id, None if hold.due_at == NEVER else hold.due_at
    until = "" if due_at is None else f", {format_when(due_at, situation.now)}"
    evidence: Evidence = {"kind": hold.kind, "due_at": due_at}
    match hold.kind:
        case "signal":
            return Cause(
                CauseCode.WAITS, f"it waits for the signal {hold.name!r}{until}",
                f"send it: penstock signal {id} {hold.name} BODY", evidence | {"signal": hold.name},
            )  # fmt: skip
        case "after" if hold.policy == "decision":
            return Cause(
                CauseCode.WAITS, f"it waits for a decision{until}",
                f"decide it: penstock inbox show {id}", evidence,
            )  # fmt: skip
        case "after":
            return Cause(
                CauseCode.WAITS,
                f"it waits for {format_count(situation.open_edges, 'message')} to end"
                f" ({hold.policy})",
                "see what those wait for, or redrive the dead ones",
                evidence | {"open": situation.open_edges, "policy": hold.policy},
            )
    return Cause(CauseCode.WAITS, f"it sleeps{until}", "wait", evidence)


def format_when(due_at: Moment, now: Moment) -> str:
    left = (due_at - now) / MICROS_PER_SECOND
    return f"at most {format_seconds(left)} more" if left > 0 else "and is due now"


def explain_key(situation: ExplainSnapshot) -> Cause:
    key, holder = situation.record.message.meta.ordering_key, situation.record.blocked_by
    if situation.holder_state is None:
        text = f"its ordering key {key!r} is held by {ANOTHER}"
        return Cause(CauseCode.KEY_HELD, text, "wait until that message ends", {"key": key})
    return Cause(
        CauseCode.KEY_HELD,
        f"its ordering key {key!r} is held by message {holder}, which is {situation.holder_state}",
        f"see what that one waits for: penstock explain {holder}",
        {"key": key, "holder": holder, "holder_state": situation.holder_state},
    )


def explain_agents(situation: ExplainSnapshot, evidence: Evidence) -> Cause:
    ran = max((run.at for run in situation.agents), default=None)
    text = "it is due, but no scheduler has made it ready yet"
    if ran is None or situation.now - ran > AGENTS_LATE_S * MICROS_PER_SECOND:
        text += "" if ran is None else f"; the agents last worked {ago(situation.now, ran)}"
    return Cause(
        CauseCode.AGENTS_LATE,
        text,
        "make sure that a worker or a server runs the agents: penstock agents",
        {**evidence, "agents_ran_at": ran},
    )


def explain_ready(situation: ExplainSnapshot) -> Iterator[Cause]:
    yield from explain_switches(situation.queue)
    yield from explain_workers(situation)
    ahead = situation.diagnosis.ahead
    if ahead:
        yield Cause(
            CauseCode.IN_LINE,
            f"{format_count(ahead, 'message')} {'is' if ahead == 1 else 'are'} before it in the"
            " queue",
            "wait, start more workers, or raise its priority",
            {"ahead": ahead},
        )
    else:
        yield Cause(CauseCode.NEXT, "it is the next message of its queue", "wait for a free worker")


def explain_workers(situation: ExplainSnapshot) -> Iterator[Cause]:
    """Causes that lie with the workers. Consumers over HTTP may be unknown to the store."""
    name, type_ = situation.queue.name, situation.record.message.type
    claimed = situation.diagnosis.claimed
    if not situation.workers:
        if not claimed and situation.now - situation.worked_at >= get_patience(situation.queue):
            yield Cause(
                CauseCode.NO_WORKER,
                f"no registered worker serves queue {name!r}, and no consumer has worked on its"
                " messages lately",
                "start a worker that serves it",
            )
        return
    able = [each for each in situation.workers if serves_type(each, name, type_)]
    if not able:
        yield Cause(
            CauseCode.TYPE_NOT_SERVED,
            f"no worker of queue {name!r} handles the type {type_!r}",
            "start a worker that has this task",
            {"workers": len(situation.workers), "type": type_},
        )
        return
    slots = sum(each.slots for each in able)
    if slots and all(each.slots for each in able) and claimed >= slots:
        yield Cause(
            CauseCode.SLOTS_BUSY,
            f"all {slots} slots of {format_count(len(able), 'worker')} are busy",
            "wait, or start more workers",
            {"slots": slots, "claimed": claimed, "workers": len(able)},
        )


def serves_type(worker: WorkerInfo, queue: str, type_: str) -> bool:
    types = worker.types.get(queue)
    return not types or type_ in types


def first_line(error: str | None) -> str:
    return (error or "").partition("\n")[0][:200]


def ago(now: Moment, at: Moment) -> str:
    return f"{format_seconds((now - at) / MICROS_PER_SECOND)} ago"


def format_seconds(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
