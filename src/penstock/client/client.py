"""The asyncio client: publish, claim and settle over HTTP."""

import os
from collections.abc import Sequence
from typing import Any, Self

from msgspec import UNSET, Struct

from penstock.broker.consume import MAX_WAIT_S, expect, split_selector
from penstock.broker.interfaces.broker import ClaimResult, Held, Merge, QueueSelector
from penstock.client.activity import RemoteActivity, RemoteFilters
from penstock.client.admin import RemoteAdmin
from penstock.client.artifacts import RemoteArtifacts
from penstock.client.broadcasts import RemoteBroadcasts
from penstock.client.bulk import RemoteBulk
from penstock.client.inbox import RemoteInbox
from penstock.client.mapping import FenceLedger, make_answer, make_leased, make_published
from penstock.client.metrics import RemoteAlerts, RemoteAnomalies, RemoteMetrics
from penstock.client.rules import RemoteRules
from penstock.client.schemas import RemoteSchemas
from penstock.client.scopes import RemoteScopes
from penstock.client.topology import RemoteTopology
from penstock.client.transport import REQUEST_TIMEOUT_S, Transport
from penstock.client.waiting import RemoteWaits
from penstock.client.workflows import RemoteWorkflows
from penstock.errors import InvalidInput
from penstock.model.message import (
    Draft,
    Fail,
    Nack,
    Park,
    Release,
    SettleCancelled,
    Settlement,
    SettleReject,
)
from penstock.model.store_types import (
    MISSING,
    Answer,
    AnswerKind,
    Completion,
    Extension,
    Mark,
    Published,
)
from penstock.retry_policies import REMOTE_CALL, REMOTE_SETTLE, RetryPolicy
from penstock.wire import consume as wire
from penstock.wire.fields import encode_body
from penstock.wire.publish import PublishOutcomes, PublishResult, make_publish_request

MAX_BATCH = 1_000
VERBS: dict[type[Settlement], str] = {
    Nack: "nack",
    Fail: "fail",
    SettleReject: "reject",
    Release: "release",
    Park: "park",
    SettleCancelled: "cancel",
}


class BatchItems(Struct, frozen=True):
    items: Sequence[Any]


class BatchBody(Struct, frozen=True):
    messages: Sequence[Any]
    atomic: bool


class Client:
    """Has the methods and types of a broker. `admin` has the admin operations."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
        ledger: FenceLedger | None = None,
        settle_retry: RetryPolicy | None = REMOTE_SETTLE,
    ) -> None:
        """`settle_retry` repeats settles and extensions whose response was lost."""
        self.transport = Transport(url, timeout, key or os.environ.get("PENSTOCK_KEY"))
        # Clients on several loops may share one, to settle what another client claimed.
        self.ledger = ledger or FenceLedger()
        self.tokens = self.ledger.tokens
        self.settle_retry = settle_retry
        self.admin = RemoteAdmin(self.transport, self.ledger)
        self.activity = RemoteActivity(self.transport, self.ledger)
        self.filters = RemoteFilters(self.transport)
        self.artifacts = RemoteArtifacts(self.transport, self.ledger)
        self.bulk = RemoteBulk(self.transport)
        self.metrics = RemoteMetrics(self.transport)
        self.anomalies = RemoteAnomalies(self.transport)
        self.alerts = RemoteAlerts(self.transport)
        self.rules = RemoteRules(self.transport)
        self.broadcasts = RemoteBroadcasts(self.transport)
        self.inbox = RemoteInbox(self.transport)
        self.workflows = RemoteWorkflows(self.transport)
        self.schemas = RemoteSchemas(self.transport)
        self.scopes = RemoteScopes(self.transport)
        self.topology = RemoteTopology(self.transport)
        self.waits = RemoteWaits(self.transport, self.ledger)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.transport.close()

    async def publish(self, draft: Draft, *, scope: str = "default") -> Published:
        """Raises OutcomeUnknown if there was no response and the draft has no dedup key."""
        accepted = await self.transport.send(
            "POST",
            "/v1/publish",
            make_publish_request(draft),
            gives=PublishResult,
            scope=scope,
            again=draft.dedup is not None,
            retry=None if draft.dedup is None else REMOTE_CALL,
        )
        routed = () if accepted.routed is UNSET else tuple(accepted.routed)
        return Published(int(accepted.id), accepted.duplicate, routed=routed)

    async def publish_many(
        self, drafts: Sequence[Draft], *, atomic: bool = False, scope: str = "default"
    ) -> list[Published]:
        if atomic and len(drafts) > MAX_BATCH:
            raise InvalidInput(f"an atomic batch over HTTP is limited to {MAX_BATCH} messages")
        published: list[Published] = []
        again = all(draft.dedup is not None for draft in drafts)
        for first in range(0, len(drafts), MAX_BATCH):
            some = [make_publish_request(draft) for draft in drafts[first : first + MAX_BATCH]]
            outcomes = await self.transport.send(
                "POST",
                "/v1/publish/batch",
                BatchBody(some, atomic),
                gives=PublishOutcomes,
                scope=scope,
                again=again,
                retry=REMOTE_CALL if again else None,
            )
            published += map(make_published, outcomes.items)
        return published

    async def claim(
        self,
        *selectors: QueueSelector,
        consumer: str,
        limit: int = 1,
        lease: float | None = None,
        wait: float = 0.0,
        begins: bool = False,
        merge: Merge = None,
        scope: str = "default",
    ) -> ClaimResult:
        asked = wire.ClaimRequest(
            queues=[
                wire.ClaimSource(name, list(types))
                for name, types in map(split_selector, selectors)
            ],
            limit=limit,
            wait=wait,
            lease=lease,
            consumer=consumer,
            begins=begins,
            merge=merge,
        )
        found = await self.transport.send(
            "POST",
            "/v1/claim",
            asked,
            gives=wire.Deliveries,
            scope=scope,
            wait=min(wait, MAX_WAIT_S),
        )
        number = self.ledger.assign_number
        messages = [make_leased(each, number(scope, each.queue)) for each in found.messages]
        for message, each in zip(messages, found.messages, strict=True):
            self.tokens[message.id, message.fence] = each.token
        return ClaimResult(messages, found.queues)

    async def seen(self, queue: str, key: str, *, scope: str = "default") -> int | None:
        found = await self.transport.send(
            "POST", "/v1/seen", wire.SeenRequest(queue, key), gives=wire.SeenAnswer, scope=scope
        )
        return None if found.id is None else int(found.id)

    async def complete(
        self, held: Held, result: bytes | None = None, *, seen: Sequence[str] = ()
    ) -> Answer:
        item = Completion(held.id, held.fence, result, tuple(seen))
        (answer,) = await self.complete_many((item,))
        return expect(answer, held.id)

    async def complete_many(self, items: Sequence[Completion]) -> list[Answer]:
        return await self._settle("complete", items, [encode_completion(item) for item in items])

    async def settle(self, held: Held, settlement: Settlement) -> Answer:
        (answer,) = await self.settle_many([(held, settlement)])
        return expect(answer, held.id)

    async def settle_many(self, items: Sequence[tuple[Held, Settlement]]) -> list[Answer]:
        """Settles each item on its own."""
        answers: dict[int, Answer] = {}
        for kind, verb in VERBS.items():
            chosen = [n for n, (_, each) in enumerate(items) if isinstance(each, kind)]
            held, sent = (
                [items[n][0] for n in chosen],
                [encode_settlement(items[n][1]) for n in chosen],
            )
            answers |= dict(zip(chosen, await self._settle(verb, held, sent), strict=True))
        if len(answers) < len(items):
            raise InvalidInput("only the server's agents can reclaim messages")
        return [answers[n] for n in range(len(items))]

    async def extend(self, held: Held, lease: float) -> Answer:
        (answer,) = await self.extend_many((Extension(held.id, held.fence, lease),))
        return expect(answer, held.id)

    async def extend_many(self, items: Sequence[Extension]) -> list[Answer]:
        sent = [{"lease": item.lease} for item in items]
        return await self._settle("extend", items, sent, over=False)

    async def begin(self, held: Held) -> Answer:
        (answer,) = await self.mark_many((Mark(held.id, held.fence, begin=True),))
        return expect(answer, held.id)

    async def progress(
        self, held: Held, percent: float | None = None, note: str | None = None
    ) -> Answer:
        (answer,) = await self.mark_many((Mark(held.id, held.fence, False, percent, note),))
        return expect(answer, held.id)

    async def mark_many(self, marks: Sequence[Mark]) -> list[Answer]:
        """Marks messages as started or reports progress, each on its own."""
        answers: dict[int, Answer] = {}
        for verb, begin in (("begin", True), ("progress", False)):
            chosen = [n for n, mark in enumerate(marks) if mark.begin is begin]
            held = [marks[n] for n in chosen]
            sent = [{} if begin else {"percent": m.percent, "note": m.note} for m in held]
            settled = await self._settle(verb, held, sent, over=False)
            answers |= dict(zip(chosen, settled, strict=True))
        return [answers[n] for n in range(len(marks))]

    async def _settle(
        self, verb: str, held: Sequence[Any], sent: Sequence[Any], *, over: bool = True
    ) -> list[Answer]:
        """Messages that this client did not claim have no token and count as missing."""
        tokens = [self.tokens.get((each.id, each.fence)) for each in held]
        items = [
            {"token": token, **each}
            for token, each in zip(tokens, sent, strict=True)
            if token is not None
        ]
        sent_answers = iter(await self._send(verb, items))
        answers = [MISSING if token is None else next(sent_answers) for token in tokens]
        if over:
            for each, answer in zip(held, answers, strict=True):
                if answer.kind is not AnswerKind.BUSY:
                    self.tokens.pop((each.id, each.fence), None)
        return answers

    async def _send(self, verb: str, items: Sequence[Any]) -> list[Answer]:
        answers: list[Answer] = []
        for first in range(0, len(items), MAX_BATCH):
            outcomes = await self.transport.send(
                "POST",
                f"/v1/{verb}/batch",
                BatchItems(items[first : first + MAX_BATCH]),
                gives=wire.SettleOutcomes,
                retry=self.settle_retry,
            )
            answers += map(make_answer, outcomes.items)
        return answers


def encode_completion(item: Completion) -> dict[str, Any]:
    seen = {"seen": list(item.seen)} if item.seen else {}
    return {**encode_result(item), **seen}


def encode_result(item: Completion) -> dict[str, Any]:
    if item.result is None:
        return {}
    json, base64 = encode_body(item.result)
    if base64 is None and json is UNSET:
        return {"result_base64": ""}
    return {"result_base64": base64} if json is UNSET else {"result": json}


def encode_settlement(settlement: Settlement) -> dict[str, Any]:
    found = {name: getattr(settlement, name) for name in settlement.__struct_fields__}
    if isinstance(settlement, Fail):
        found["error"] = settlement.error or "failed"
    return found
