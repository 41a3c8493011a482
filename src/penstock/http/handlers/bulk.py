"""Routes for bulk operations: redrive by filter, export, import."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.responses import StreamingResponse

from penstock.errors import FieldMasked, InvalidInput, PenstockError
from penstock.http.context import RequestContext
from penstock.http.errors import make_malformed_error
from penstock.http.handlers.publish import announce_one, refuse_unfit
from penstock.http.operations import OperationTable
from penstock.model.message import Draft, Record, State
from penstock.model.store_types import Published
from penstock.rules.access import Right
from penstock.wire.fields import Name
from penstock.wire.publish import PlainRequest, Problem, PublishRequest, decode_request, make_draft
from penstock.wire.records import (
    Imported,
    MessageView,
    RedriveFilter,
    RedriveOutcome,
    RedriveOutcomes,
)

bulk = OperationTable("messages")
PAGE_SIZE = 200
# A redrive with a rate responds after this time, with a cursor to continue.
MAX_RESPONSE_TIME_S = 20.0
MAX_ERRORS = 100
NDJSON = "application/x-ndjson"
WAITING_AND_CLAIMED = frozenset({State.SCHEDULED, State.READY, State.CLAIMED})
# An exported message has fields that a publisher cannot set; imports skip them.
KNOWN_FIELDS = {*PublishRequest.__struct_fields__, *MessageView.__struct_fields__}
encode = msgspec.json.Encoder().encode


@bulk.add(
    "POST", "/v1/redrive", "Redrive messages", RedriveOutcomes, takes=RedriveFilter,
    example={"state": "dead", "queue": "mail", "rate": 50},
)  # fmt: skip
async def redrive_messages(call: RequestContext, wanted: RedriveFilter) -> RedriveOutcomes:
    if wanted.ids is not None:
        return make_outcomes([await redrive_one(call, int(id)) for id in wanted.ids])
    filter = ("redrive", call.caller.tenant, call.scope, wanted.state, wanted.queue, wanted.type)
    tokens = call.service.tokens
    before = None if wanted.cursor is None else tokens.unseal_cursor(wanted.cursor, filter)
    found = await call.admin.find(
        wanted.queue,
        state=State(wanted.state),
        type=wanted.type,
        before=before,
        limit=wanted.limit,
        scope=call.scope,
    )
    items = [each async for each in redrive_at_rate(call, found, wanted.rate)]
    more = len(items) < len(found) or len(found) == wanted.limit
    cursor = tokens.seal_cursor(int(items[-1].id), filter) if items and more else None
    return make_outcomes(items, cursor)


async def redrive_at_rate(
    call: RequestContext, found: list[Record], rate: float | None
) -> AsyncIterator[RedriveOutcome]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number, record in enumerate(found):
        if rate is not None:
            due = number / rate
            if due > MAX_RESPONSE_TIME_S:
                return
            await asyncio.sleep(began + due - loop.time())
        yield await redrive_one(call, record.message.id)


async def redrive_one(call: RequestContext, id: int) -> RedriveOutcome:
    try:
        published = await call.admin.redrive(id, scope=call.scope)
    except PenstockError as error:
        return RedriveOutcome(str(id), error=Problem(error.code, str(error)))
    return RedriveOutcome(str(id), None if published.id == id else str(published.id))


def make_outcomes(items: list[RedriveOutcome], cursor: str | None = None) -> RedriveOutcomes:
    refused = sum(item.error is not None for item in items)
    return RedriveOutcomes(items, len(items) - refused, refused, cursor)


@bulk.add("GET", "/v1/queues/{queue}/export", "Export messages of a queue", NDJSON)
async def export_queue(
    call: RequestContext, queue: Name, state: State | None = None
) -> StreamingResponse:
    """Streams one message per line (NDJSON), oldest first. It is not a snapshot: messages that
    change during the export appear in the state in which they are read."""
    await call.admin.queue(queue, scope=call.scope)
    return StreamingResponse(stream_export(call, queue, state), media_type=NDJSON)


async def stream_export(
    call: RequestContext, queue: str, state: State | None
) -> AsyncIterator[bytes]:
    after = 0
    while True:
        page = await call.admin.find(
            queue, state=state, after=after, limit=PAGE_SIZE, scope=call.scope
        )
        yield b"".join([encode(await call.view(record)) + b"\n" for record in page])
        if len(page) < PAGE_SIZE:
            return
        after = page[-1].message.id


@bulk.add(
    "POST", "/v1/queues/{queue}/import", "Import messages into a queue", Imported, takes=NDJSON,
    right=Right.PUBLISH,
    example='{"type": "mail.send", "body": {"to": "ada@example.org"}}\n',
)  # fmt: skip
async def import_messages(
    call: RequestContext,
    queue: Name,
    state: Annotated[
        tuple[State, ...],
        Meta(description="States of the exported messages to import. Default: unfinished."),
    ] = (),
) -> Imported:
    """Publishes one message per line (NDJSON), in the format of publish or of an export. Of an
    export, only messages that were ready, scheduled or claimed are imported, so that finished work
    does not run again; `state` selects which states to import. Other fields that only an export
    has (id, timeline) are ignored. Each line succeeds or fails on its own."""
    await call.admin.queue(queue, scope=call.scope)
    made = Importer(call, queue, frozenset(state) or WAITING_AND_CLAIMED)
    async for line in call.lines():
        await made.add(line)
    await made.publish()
    return Imported(made.published, made.refused, made.errors, made.skipped)


class Importer:
    def __init__(self, call: RequestContext, queue: str, states: frozenset[State]) -> None:
        self.call = call
        self.queue = queue
        self.states = states
        self.drafts: list[Draft] = []
        self.published = self.refused = self.skipped = 0
        self.errors: list[Problem] = []

    async def add(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            fields = decode_fields(line)
            if not self.takes(fields):
                self.skipped += 1
                return
            draft = make_draft(read(fields, self.queue), self.call.publisher)
            refuse_unfit(self.call, draft)
            self.drafts.append(draft)
        except PenstockError as error:
            self.refuse(Problem(error.code, str(error)))
        if len(self.drafts) >= PAGE_SIZE:
            await self.publish()

    def takes(self, fields: dict[str, msgspec.Raw]) -> bool:
        if "state" not in fields:
            return True
        try:
            return msgspec.json.decode(fields["state"], type=State) in self.states
        except msgspec.DecodeError as error:
            raise make_malformed_error(error) from None

    async def publish(self) -> None:
        drafts, self.drafts = self.drafts, []
        if not drafts:
            return
        published = await self.call.broker.publish_many(drafts, scope=self.call.scope)
        announce_one(self.call, drafts, published)
        for each in published:
            self.count(each)

    def count(self, published: Published) -> None:
        if published.code is None:
            self.published += 1
        else:
            self.refuse(Problem(published.code, published.error or published.code))

    def refuse(self, problem: Problem) -> None:
        self.refused += 1
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(problem)


def decode_fields(line: bytes) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise make_malformed_error(error) from None


def read(fields: dict[str, msgspec.Raw], queue: str) -> PublishRequest | PlainRequest:
    if unknown := fields.keys() - KNOWN_FIELDS:
        raise InvalidInput(f"unknown field {', '.join(sorted(unknown))}")
    if b'"' in bytes(fields.get("masked", b"")):
        raise FieldMasked(
            "the message was exported without the right 'reveal'; its masked values are lost"
        )
    kept = {name: fields[name] for name in PublishRequest.__struct_fields__ if name in fields}
    kept["queue"] = msgspec.Raw(encode(queue))
    try:
        return decode_request(encode(kept))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise make_malformed_error(error) from None
