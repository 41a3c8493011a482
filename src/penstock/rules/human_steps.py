"""Rules: makes the messages of human steps."""

import msgspec
from msgspec.structs import replace

from penstock.model.human import HumanSpec
from penstock.model.message import After, Draft, Flag, State, Verb
from penstock.model.queue import HUMAN, Queue
from penstock.model.store_types import Entry
from penstock.model.waiting import HeldEnd
from penstock.rules import drafts

TYPE = "human.step"
REQUESTER = "penstock-requester"
# Begins the requester of a step that a routing rule opened.
RULE_REQUESTER = "rule:"
encode = msgspec.json.Encoder().encode


def make_step_draft(spec: HumanSpec, requester: str, draft: Draft) -> Draft:
    return replace(
        draft,
        queue=HUMAN,
        type=TYPE,
        body=encode(spec),
        headers={REQUESTER: requester} if requester else {},
    )


def make_step_entry(draft: Draft, queue: Queue) -> Entry:
    """Makes the message of a step. It is held until a decision ends it."""
    entry = drafts.check_and_make_entry(draft, queue)
    return replace(entry, flags=entry.flags | Flag.HELD, after=After(policy="decision"))


def make_abandoned(id: int) -> HeldEnd:
    """Makes the end of a step whose requester has ended."""
    return HeldEnd(id=id, verb=Verb.CANCEL, state=State.CANCELLED, reason="requester_ended")
