"""Many messages at once: redrive by filter, export, import."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec
from fastapi import Query
from fastapi.responses import StreamingResponse

from penstock.access import Right
from penstock.errors import InvalidInput, PenstockError
from penstock.http.call import Call
from penstock.http.envelope import unreadable
from penstock.http.producing import refuse_unfit, tell
from penstock.http.route import Called, QueueName, Routes, sent
from penstock.message import Draft, Record, State
from penstock.ticket import Published
from penstock.wire.publish import Problem, Publish, draft_of
from penstock.wire.records import (
    Imported,
    Redrive,
    RedriveOutcome,
    RedriveOutcomes,
    stored_of,
)

bulk = Routes("messages")
PAGE = 200
# A call with a rate is answered after so many seconds, with a cursor to go on.
LONGEST = 20.0
MOST_ERRORS = 100
LINES = "application/x-ndjson"
encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Publish).decode


@bulk.add(
    "POST", "/v1/redrive", "Send many ended messages again", RedriveOutcomes, takes=Redrive,
    example={"state": "dead", "queue": "mail", "rate": 50},
)  # fmt: skip
async def redrive_many(call: Called, wanted: Annotated[Redrive, sent(Redrive)]) -> RedriveOutcomes:
    if wanted.ids is not None:
        return outcomes([await redrive_one(call, int(id)) for id in wanted.ids])
    filter = ("redrive", call.caller.tenant, call.scope, wanted.state, wanted.queue, wanted.type)
    tokens = call.service.tokens
    before = None if wanted.cursor is None else tokens.unseal(wanted.cursor, filter)
    found = await call.admin.find(
        wanted.queue,
        state=State(wanted.state),
        type=wanted.type,
        before=before,
        limit=wanted.limit,
        scope=call.scope,
    )
    items = [each async for each in paced(call, found, wanted.rate)]
    more = len(items) < len(found) or len(found) == wanted.limit
    cursor = tokens.seal(int(items[-1].id), filter) if items and more else None
    return outcomes(items, cursor)


async def paced(
    call: Call, found: list[Record], rate: float | None
) -> AsyncIterator[RedriveOutcome]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number, record in enumerate(found):
        if rate is not None:
            due = number / rate
            if due > LONGEST:
                return
            await asyncio.sleep(began + due - loop.time())
        yield await redrive_one(call, record.message.id)


async def redrive_one(call: Call, id: int) -> RedriveOutcome:
    try:
        published = await call.admin.redrive(id, scope=call.scope)
    except PenstockError as error:
        return RedriveOutcome(str(id), error=Problem(error.code, str(error)))
    return RedriveOutcome(str(id), None if published.id == id else str(published.id))


def outcomes(items: list[RedriveOutcome], cursor: str | None = None) -> RedriveOutcomes:
    refused = sum(item.error is not None for item in items)
    return RedriveOutcomes(items, len(items) - refused, refused, cursor)


@bulk.add("GET", "/v1/queues/{queue}/export", "Messages of a queue, one a line", LINES)
async def export(
    call: Called,
    queue: QueueName,
    state: Annotated[State | None, Query()] = None,
) -> StreamingResponse:
    """The newest first, as they are while they are read."""
    await call.admin.queue(queue, scope=call.scope)
    return StreamingResponse(exported(call, queue, state), media_type=LINES)


async def exported(call: Call, queue: str, state: State | None) -> AsyncIterator[bytes]:
    before: int | None = None
    while True:
        page = await call.admin.find(
            queue, state=state, before=before, limit=PAGE, scope=call.scope
        )
        yield b"".join(encode(stored_of(record, queue)) + b"\n" for record in page)
        if len(page) < PAGE:
            return
        before = page[-1].message.id


@bulk.add(
    "POST", "/v1/queues/{queue}/import", "Publish messages, one a line", Imported, takes=LINES,
    right=Right.PUBLISH,
    example='{"type": "mail.send", "body": {"to": "ada@example.org"}}\n',
)  # fmt: skip
async def import_(call: Called, queue: QueueName) -> Imported:
    """Lines as `publish` takes them, or as an export gave them: what is not for a publisher to say
    (id, state, timeline) is left out. Each line answers for itself."""
    await call.admin.queue(queue, scope=call.scope)
    made = Importing(call, queue)
    async for line in call.lines():
        await made.add(line)
    await made.publish()
    return Imported(made.published, made.refused, made.errors)


class Importing:
    def __init__(self, call: Call, queue: str) -> None:
        self.call = call
        self.queue = queue
        self.drafts: list[Draft] = []
        self.published = self.refused = 0
        self.errors: list[Problem] = []

    async def add(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            draft = draft_of(read(line, self.queue))
            refuse_unfit(self.call, draft)
            self.drafts.append(draft)
        except PenstockError as error:
            self.refuse(Problem(error.code, str(error)))
        if len(self.drafts) >= PAGE:
            await self.publish()

    async def publish(self) -> None:
        drafts, self.drafts = self.drafts, []
        if not drafts:
            return
        published = await self.call.broker.publish_many(drafts, scope=self.call.scope)
        tell(self.call, drafts, published)
        for each in published:
            self.count(each)

    def count(self, published: Published) -> None:
        if published.code is None:
            self.published += 1
        else:
            self.refuse(Problem(published.code, published.error or published.code))

    def refuse(self, problem: Problem) -> None:
        self.refused += 1
        if len(self.errors) < MOST_ERRORS:
            self.errors.append(problem)


def read(line: bytes, queue: str) -> Publish:
    try:
        fields = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
        kept = {name: fields[name] for name in Publish.__struct_fields__ if name in fields}
        if unknown := fields.keys() - set(Publish.__struct_fields__) - TOLD:
            raise InvalidInput(f"no field named {', '.join(sorted(unknown))}")
        kept["queue"] = msgspec.Raw(encode(queue))
        return decode(encode(kept))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable(error) from None


# What an export says of a message, and no publisher.
TOLD = {
    "id", "state", "attempts", "deliveries", "created_at", "reason", "error", "due_at",
    "lease_until", "consumer", "claimed_at", "begun_at", "cancel_requested", "percent", "note",
    "redrives", "dedup_key", "timeline",
}  # fmt: skip
