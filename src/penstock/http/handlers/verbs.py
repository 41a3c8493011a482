"""The operations that producers and consumers call all the time: publish, claim and settle."""

from typing import Any

from penstock.http.handlers import settle
from penstock.http.handlers.claim import ask_seen, claim
from penstock.http.handlers.complete import SettleWithArtifacts
from penstock.http.handlers.publish import publish, publish_many
from penstock.http.handlers.settle import SettleHandler
from penstock.http.operations import VERBS, OperationTable
from penstock.rules.access import Right
from penstock.wire import consume as wire
from penstock.wire.publish import (
    PublishBatchRequest,
    PublishOutcomes,
    PublishRequest,
    PublishResult,
    decode_batch_request,
    decode_request,
)

TOKEN = "7.3.2.5d41402abc4b2a76b9719d911017c592ab01"
IDEMPOTENCY = {
    "Idempotency-Key": "A repeated request with the same key publishes nothing and returns the same"
    " ids. Keys are kept for a day."
}
verbs = OperationTable(VERBS)

verbs.add(
    "POST", "/v1/publish", "Publish a message", PublishResult, takes=PublishRequest, status=201,
    decode=decode_request, needs_body=True, right=Right.PUBLISH, headers=IDEMPOTENCY,
    example={"queue": "mail", "type": "mail.send", "body": {"to": "ada@example.org"}},
    answer={"id": "7", "duplicate": False},
)(publish)  # fmt: skip
verbs.add(
    "POST", "/v1/publish/batch", "Publish a batch of messages", PublishOutcomes,
    takes=PublishBatchRequest, decode=decode_batch_request, name="publish_batch",
    right=Right.PUBLISH, headers=IDEMPOTENCY,
    example={
        "messages": [{"queue": "mail", "body": 1}, {"queue": "mail", "body": 2}], "atomic": True,
    },
    answer={"items": [{"id": "8"}, {"id": "9"}], "published": 2, "refused": 0},
)(publish_many)  # fmt: skip
verbs.add(
    "POST", "/v1/claim", "Claim messages", wire.Deliveries, takes=wire.ClaimRequest,
    right=Right.CONSUME,
    example={"queues": [{"queue": "mail"}], "limit": 10, "wait": 20, "consumer": "worker-1"},
    answer={
        "messages": [
            {
                "id": "7",
                "token": TOKEN,
                "queue": "mail",
                "type": "mail.send",
                "priority": 0,
                "attempts": 0,
                "deliveries": 1,
                "created_at": "2026-11-16T09:00:00.000000Z",
                "lease_until": "2026-11-16T09:00:31.000000Z",
                "body": {"to": "ada@example.org"},
                "fence": 3,
            }
        ],
        "queues": {"mail": "active"},
    },
)(claim)  # fmt: skip

verbs.add(
    "POST", "/v1/seen", "Check whether a key was recorded", wire.SeenAnswer, takes=wire.SeenRequest,
    name="seen", right=Right.CONSUME, example={"queue": "events/mailer", "key": "order-7"},
    answer={"duplicate": True, "id": "7"},
)(ask_seen)  # fmt: skip


def add_pair(
    verb: str, takes: Any, act: Any, summary: str, example: dict[str, Any], answer: dict[str, Any]
) -> None:
    """Declares the single and the batch operation of a verb. The lock token names the message, so
    they take no scope."""
    acts = (SettleWithArtifacts if verb in ("complete", "fail") else SettleHandler)(verb, act)
    sent, settled = {"token": TOKEN, **example}, {"id": "7", **answer}
    verbs.add(
        "POST", f"/v1/{verb}", summary, wire.Settled, name=verb, takes=takes, right=Right.CONSUME,
        scoped=False, example=sent, answer=settled,
    )(acts.settle_one)  # fmt: skip
    verbs.add(
        "POST", f"/v1/{verb}/batch", f"{summary} (batch)", wire.SettleOutcomes,
        name=f"{verb}_batch", takes=wire.Items[takes], right=Right.CONSUME, scoped=False,
        example={"items": [sent]}, answer={"items": [settled], "done": 1, "refused": 0},
    )(acts.settle_batch)  # fmt: skip


PAIRS: tuple[tuple[str, Any, Any, str, dict[str, Any], dict[str, Any]], ...] = (
    ("complete", wire.CompleteRequest, settle.complete, "Complete a message",
     {"result": {"sent": True}}, {"state": "completed"}),
    ("fail", wire.FailRequest, settle.make_settle(settle.fail), "Fail a message permanently",
     {"error": "order was withdrawn"}, {"state": "failed"}),
    ("nack", wire.NackRequest, settle.make_settle(settle.nack), "Reject a message for retry",
     {"error": "mail server unavailable", "delay": 60},
     {"state": "scheduled", "delay": 60.0, "due_at": "2026-11-16T09:01:31.000000Z"}),
    ("reject", wire.RejectRequest, settle.make_settle(settle.reject), "Dead-letter a message",
     {"error": "invalid address"}, {"state": "dead"}),
    ("release", wire.ReleaseRequest, settle.make_settle(settle.release),
     "Release a message without processing it", {}, {"state": "ready"}),
    ("park", wire.ParkRequest, settle.make_settle(settle.park),
     "Park a message of an unknown type", {}, {"state": "scheduled"}),
    ("cancel", wire.SettleCancelledRequest, settle.make_settle(settle.cancel),
     "Confirm that a message was cancelled", {}, {"state": "cancelled"}),
    ("extend", wire.ExtendRequest, settle.extend, "Extend a lease",
     {"lease": 30}, {"lease_until": "2026-11-16T09:01:01.000000Z"}),
    ("begin", wire.BeginRequest, settle.begin, "Mark a message as started", {}, {}),
    ("progress", wire.ProgressRequest, settle.progress, "Report progress",
     {"percent": 40, "note": "12 of 30"}, {}),
)  # fmt: skip
for pair in PAIRS:
    add_pair(*pair)
