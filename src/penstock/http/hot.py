"""The routes that must be quick: one table, which the front serves and OpenAPI shows."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from penstock.access import Right
from penstock.http import settling
from penstock.http.call import Call
from penstock.http.claiming import claim
from penstock.http.completing import Completing
from penstock.http.envelope import unreadable
from penstock.http.producing import publish, publish_many
from penstock.http.settling import Settling
from penstock.wire import consume as wire
from penstock.wire.publish import Accepted, Publish, PublishMany, PublishOutcomes

TOKEN = "7.3.2.5d41402abc4b2a76b9719d911017c592ab01"


class Operation(Struct, frozen=True):
    """A POST of `takes` that is answered with `gives`."""

    path: str
    summary: str
    takes: Any
    gives: Any
    act: Callable[[Call, Any], Awaitable[Any]]
    example: Any
    answer: Any
    # For the queues in question, which the act checks.
    right: Right
    status: int = 200
    # It is about the queues of a scope; a token says by itself what it is about.
    scoped: bool = False

    def reader(self) -> Callable[[bytes], Any]:
        decode = msgspec.json.Decoder(self.takes).decode

        def read(body: bytes) -> Any:
            try:
                return decode(body)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise unreadable(error) from None

        return read


PRODUCING = (
    Operation(
        "/v1/publish",
        "Publish a message",
        Publish,
        Accepted,
        publish,
        {"queue": "mail", "type": "mail.send", "body": {"to": "ada@example.org"}},
        {"id": "7", "duplicate": False},
        Right.PUBLISH,
        201,
        scoped=True,
    ),
    Operation(
        "/v1/publish/batch",
        "Publish many messages",
        PublishMany,
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
    wire.Claim,
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


def both(
    verb: str, takes: Any, act: Any, summary: str, example: dict[str, Any], answer: dict[str, Any]
) -> tuple[Operation, Operation]:
    """A verb for one item, and for many."""
    acts = (Completing if verb == "complete" else Settling)(verb, act)
    sent, told = {"token": TOKEN, **example}, {"id": "7", **answer}
    return (
        Operation(f"/v1/{verb}", summary, takes, wire.Settled, acts.one, sent, told, Right.CONSUME),
        Operation(
            f"/v1/{verb}/batch",
            f"{summary} (many)",
            wire.Items[takes],
            wire.SettleOutcomes,
            acts.many,
            {"items": [sent]},
            {"items": [told], "done": 1, "refused": 0},
            Right.CONSUME,
        ),
    )


SETTLING = (
    *both("complete", wire.Complete, settling.complete, "It worked",
          {"result": {"sent": True}}, {"state": "completed"}),
    *both("fail", wire.Fail, settling.by(settling.fail), "It is final: never again",
          {"error": "the order was withdrawn"}, {"state": "failed"}),
    *both("nack", wire.Nack, settling.by(settling.nack), "It did not work: try again",
          {"error": "the mail server is away", "delay": 60}, {"state": "scheduled"}),
    *both("reject", wire.Reject, settling.by(settling.reject), "To the dead letters",
          {"error": "this is no address"}, {"state": "dead"}),
    *both("release", wire.Release, settling.by(settling.release), "Back unworked",
          {}, {"state": "ready"}),
    *both("park", wire.Park, settling.by(settling.park), "Back until somebody knows its type",
          {}, {"state": "scheduled"}),
    *both("cancel", wire.Stop, settling.by(settling.cancel), "You stopped, as you were asked to",
          {}, {"state": "cancelled"}),
    *both("extend", wire.Extend, settling.extend, "Lengthen the lease",
          {"lease": 30}, {"lease_until": "2026-11-16T09:01:01.000000Z"}),
    *both("begin", wire.Begin, settling.begin, "Say that work on a message begins", {}, {}),
    *both("progress", wire.Progress, settling.progress, "Say how far it is",
          {"percent": 40, "note": "12 of 30"}, {}),
)  # fmt: skip

OPERATIONS: dict[str, Operation] = {each.path: each for each in (*PRODUCING, CLAIMING, *SETTLING)}
