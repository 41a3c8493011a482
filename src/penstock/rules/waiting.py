"""Counts and limits waits, and decides when a hold has ended."""

import re
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import InvalidInput, StepTooLarge, WaitsForItself
from penstock.model.message import After, Flag, Moment, State, Verb
from penstock.model.store_types import Entry, Lease, Move
from penstock.model.waiting import Hold, StepRecord, Wait, WaitFacts
from penstock.rules import validation

SIGNAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
MAX_SIGNAL_BYTES = 64 * 1024
MAX_KEY_LENGTH = 200
MAX_STEPS = 10_000
MAX_STEP_BYTES = 1_000_000
# From this many quick waits in a row, each is delayed, so that a loop does not spin.
MAX_QUICK_WAITS = 9
QUICK_WAIT_S = 1.0
QUICK_WAIT: Moment = 1_000_000
# The scheduler resumes what is due each second, and a worker has to claim it.
DELAYED_WAIT: Moment = 3_000_000
COUNTS_AS_DONE = State.COMPLETED.value


class WaitRequest(Struct, frozen=True, kw_only=True):
    """The wait that a run requests when it suspends."""

    reason: str
    holds: tuple[Hold, ...] = ()
    steps: tuple[StepRecord, ...] = ()
    children: tuple[Entry, ...] = ()
    children_step: StepRecord | None = None

    @property
    def records(self) -> bool:
        return bool(self.steps or self.children_step is not None)


def decide_wait(
    lease: Lease, request: WaitRequest, facts: WaitFacts, max_waits: int
) -> Wait | Move:
    """Lets the message wait, or ends it: cancelled on request, dead past a bound."""
    if lease.flags & Flag.CANCEL_REQUESTED:
        return end_instead(lease, State.CANCELLED, "requested", lease.attempts)
    if facts.waits >= max_waits:
        return end_instead(lease, State.DEAD, "max_waits", lease.attempts + 1)
    if facts.steps > MAX_STEPS:
        return end_instead(lease, State.DEAD, "max_steps", lease.attempts + 1)
    new = facts.recorded or request.records
    holds = request.holds
    if count_quick(facts, lease.claimed_at) >= MAX_QUICK_WAITS:
        holds = (*holds, Hold(kind="moment", delay=QUICK_WAIT_S))
    return Wait(
        id=lease.id,
        fence=lease.fence,
        seen_flags=lease.flags,
        attempts=0 if new else lease.attempts + 1,
        deliveries=0 if new else lease.deliveries,
        reason=request.reason,
        holds=holds,
        steps=request.steps,
        children=request.children,
        children_step=request.children_step,
    )


def refuse_own_key(lease: Lease, children: tuple[Entry, ...]) -> None:
    """Refuses a child that could run only after the message that waits for it."""
    own = lease.meta.ordering_key
    for child in children:
        if own is not None and (child.queue_id, child.ordering_key) == (lease.queue_id, own):
            raise WaitsForItself(
                f"message {lease.id} waits for a child with its own ordering key {own!r},"
                " which runs after it; give the child another key"
            )


def end_full(lease: Lease, facts: WaitFacts) -> Move | None:
    """Ends a message that stores more steps than it may, or returns None if it has room."""
    if facts.steps < MAX_STEPS:
        return None
    return end_instead(lease, State.DEAD, "max_steps", lease.attempts + 1)


def end_instead(lease: Lease, state: State, reason: str, attempts: int) -> Move:
    return Move(
        lease.id, lease.fence, lease.flags, Verb.WAIT, state, attempts, lease.deliveries, reason
    )


def count_quick(facts: WaitFacts, claimed_at: Moment) -> int:
    """Counts the last waits in a row that ended within a second, or would have if not delayed."""
    count = 0
    for wait in facts.recent:
        lasted = claimed_at - wait.at
        delayed = wait.due_at is not None and wait.due_at - wait.at <= QUICK_WAIT
        if lasted >= (DELAYED_WAIT if delayed else QUICK_WAIT):
            break
        count, claimed_at = count + 1, wait.claimed_at
    return count


def mark_awaited(entries: Sequence[Entry], holds: Sequence[After]) -> list[Entry]:
    """Flags the entries that others wait for, so that their end is announced."""
    awaited = {place for after in holds for place in after.entries}
    return [
        replace(entry, flags=entry.flags | Flag.AWAITED) if place in awaited else entry
        for place, entry in enumerate(entries)
    ]


def waits_for_all(policy: str) -> bool:
    """True if the policy is not met while one message has yet to end."""
    return policy in ("all", "settled")


def decide_after(policy: str, need: int, counts: Mapping[str | None, int]) -> bool | None:
    """Returns True if the policy is met, False if it cannot be met any more, otherwise None.

    `counts` has the number of edges by the state their message ended in, None for open ones.
    """
    still_open, done = counts.get(None, 0), counts.get(COUNTS_AS_DONE, 0)
    failed = sum(counts.values()) - still_open - done
    match policy:
        case "all":
            return False if failed else None if still_open else True
        case "any":
            if done >= need:
                return True
            return None if done + still_open >= need else False
        case "decision":
            return None
        case _:
            return None if still_open else True


def list_children(step: StepRecord) -> list[int]:
    """Returns the ids of the messages that a step published.

    A gather stores them as a list, and before the list of their states when it is done. Workers in
    other languages may store something else.
    """
    try:
        stored = msgspec.json.decode(step.body)
    except msgspec.DecodeError:
        return []
    listed = stored if isinstance(stored, list) else [stored]
    ids = listed[0] if listed and isinstance(listed[0], list) else listed
    return [id for id in ids if type(id) is int]


def check_step_size(name: str, body: bytes) -> None:
    if len(body) > MAX_STEP_BYTES:
        raise StepTooLarge(
            f"step {name!r} returned {len(body)} bytes; at most {MAX_STEP_BYTES} are stored:"
            " store the data elsewhere and return a reference"
        )


def check_signal(name: str, body: bytes, key: str | None) -> None:
    if not isinstance(name, str) or not SIGNAL_NAME.fullmatch(name):
        raise InvalidInput(
            f"signal name {validation.clip(name)} must be 1 to 100 letters, digits, '.', '_' or '-'"
        )
    if len(body) > MAX_SIGNAL_BYTES:
        raise InvalidInput(f"a signal can have at most {MAX_SIGNAL_BYTES} bytes, not {len(body)}")
    if key is not None:
        validation.check_text("key", key, MAX_KEY_LENGTH)
