"""The operation table of the hot routes: publish, claim and settle.

The ASGI app serves it and the OpenAPI document lists it.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from penstock.http.context import RequestContext
from penstock.http.errors import make_malformed_error
from penstock.http.handlers import settle
from penstock.http.handlers.claim import claim
from penstock.http.handlers.complete import CompletionWithFiles
from penstock.http.handlers.publish import publish, publish_many
from penstock.http.handlers.settle import Settling
from penstock.rules.access import Right
from penstock.wire import consume as wire
from penstock.wire.publish import (
    PublishBatchRequest,
    PublishOutcomes,
    PublishRequest,
    PublishResult,
)

TOKEN = "7.3.2.5d41402abc4b2a76b9719d911017c592ab01"


class Operation(Struct, frozen=True):
    """A POST route that takes `takes` and responds with `gives`."""

    path: str
    summary: str
    takes: Any
    gives: Any
    act: Callable[[RequestContext, Any], Awaitable[Any]]
    example: Any
    answer: Any
    # `act` checks it against the queues of the request.
    right: Right
    status: int = 200
    # Takes ?scope=. Settle operations do not: the lock token identifies the message.
    scoped: bool = False

    def make_reader(self) -> Callable[[bytes], Any]:
        decode = msgspec.json.Decoder(self.takes).decode

        def read(body: bytes) -> Any:
            try:
                return decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise make_malformed_error(error) from None

        return read


PRODUCING = (
    Operation(
        "/v1/publish",
        "Publish a message",
        PublishRequest,
        PublishResult,
        publish,
        {"queue": "mail", "type": "mail.send", "body": {"to": "ada@example.org"}},
        {"id": "7", "duplicate": False},
        Right.PUBLISH,
        201,
        scoped=True,
    ),
    Operation(
        "/v1/publish/batch",
        "Publish a batch of messages",
        PublishBatchRequest,
        PublishOutcomes,
        publish_many,
        {"messages": [{"queue": "mail", "body": 1}, {"queue": "mail", "body": 2}], "atomic": True},
        {"items": [{"id": "8"}, {"id": "9"}], "published": 2, "refused": 0},
        Right.PUBLISH,
        scoped=True,
    ),
)
CLAIMING = Operation(
    "/v1/claim",
    "Claim messages",
    wire.ClaimRequest,
    wire.Deliveries,
    claim,
    {"queues": [{"queue": "mail"}], "limit": 10, "wait": 20, "consumer": "worker-1"},
    {
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
    Right.CONSUME,
    scoped=True,
)


def make_pair(
    verb: str, takes: Any, act: Any, summary: str, example: dict[str, Any], answer: dict[str, Any]
) -> tuple[Operation, Operation]:
    """Returns the single and the batch operation of a verb."""
    acts = (CompletionWithFiles if verb == "complete" else Settling)(verb, act)
    sent, told = {"token": TOKEN, **example}, {"id": "7", **answer}
    return (
        Operation(
            f"/v1/{verb}", summary, takes, wire.Settled, acts.settle_one, sent, told, Right.CONSUME
        ),
        Operation(
            f"/v1/{verb}/batch",
            f"{summary} (batch)",
            wire.Items[takes],
            wire.SettleOutcomes,
            acts.settle_batch,
            {"items": [sent]},
            {"items": [told], "done": 1, "refused": 0},
            Right.CONSUME,
        ),
    )


SETTLING = (
    *make_pair(
        "complete",
        wire.CompleteRequest,
        settle.complete,
        "Complete a message",
        {"result": {"sent": True}},
        {"state": "completed"},
    ),
    *make_pair(
        "fail",
        wire.FailRequest,
        settle.make_settle(settle.fail),
        "Fail a message permanently",
        {"error": "order was withdrawn"},
        {"state": "failed"},
    ),
    *make_pair(
        "nack",
        wire.NackRequest,
        settle.make_settle(settle.nack),
        "Reject a message for retry",
        {"error": "mail server unavailable", "delay": 60},
        {"state": "scheduled"},
    ),
    *make_pair(
        "reject",
        wire.RejectRequest,
        settle.make_settle(settle.reject),
        "Dead-letter a message",
        {"error": "invalid address"},
        {"state": "dead"},
    ),
    *make_pair(
        "release",
        wire.ReleaseRequest,
        settle.make_settle(settle.release),
        "Release a message unprocessed",
        {},
        {"state": "ready"},
    ),
    *make_pair(
        "park",
        wire.ParkRequest,
        settle.make_settle(settle.park),
        "Park a message of an unknown type",
        {},
        {"state": "scheduled"},
    ),
    *make_pair(
        "cancel",
        wire.SettleCancelledRequest,
        settle.make_settle(settle.cancel),
        "Confirm that a message was cancelled",
        {},
        {"state": "cancelled"},
    ),
    *make_pair(
        "extend",
        wire.ExtendRequest,
        settle.extend,
        "Extend a lease",
        {"lease": 30},
        {"lease_until": "2026-11-16T09:01:01.000000Z"},
    ),
    *make_pair("begin", wire.BeginRequest, settle.begin, "Mark a message as started", {}, {}),
    *make_pair(
        "progress",
        wire.ProgressRequest,
        settle.progress,
        "Report progress",
        {"percent": 40, "note": "12 of 30"},
        {},
    ),
)

OPERATIONS: dict[str, Operation] = {each.path: each for each in (*PRODUCING, CLAIMING, *SETTLING)}
