"""Stores documents of features and the audit log, and writes changes of them with messages."""

from collections.abc import Iterator, Sequence

import msgspec

from penstock.model.changes import Change, Changed, Item, decode_item_answer
from penstock.model.documents import AuditEntry, Document
from penstock.model.message import NEVER
from penstock.stores.redis import publish
from penstock.stores.redis.codec import NONE, encode_id, make_document_field
from penstock.stores.redis.database import RedisDatabase
from penstock.stores.redis.waiting import encode_holding

encode = msgspec.json.Encoder().encode
# Ranks are stored above this number, because negative ones would not sort as text.
RANK_ZERO = 2**53
decode = msgspec.json.Decoder(AuditEntry).decode


class RedisDocuments:
    def __init__(self, database: RedisDatabase) -> None:
        self.database = database

    async def save_documents(self, given: Sequence[Document]) -> list[bool]:
        if not given:
            return []
        words = [word for each in given for word in split_field(each)]
        return [answer == 1 for answer in await self.database.run("save_documents", *words)]

    async def document(self, kind: str, name: str) -> Document | None:
        field = make_document_field(kind, name)
        found = await self.database.run("documents", b"[" + field, b"[" + field, 1)
        return decode_document(*found) if found else None

    async def documents(self, kind: str, after: str = "", limit: int = 1_000) -> list[Document]:
        # The kind followed by "!", the byte after a space, sorts behind all names of the kind.
        first, last = b"(" + make_document_field(kind, after), b"(" + kind.encode() + b"!"
        found = await self.database.run("documents", first, last, limit)
        return [decode_document(*pair) for pair in zip(found[::2], found[1::2], strict=True)]

    async def delete_documents(self, kind: str, names: Sequence[str]) -> int:
        fields = [make_document_field(kind, name) for name in names]
        return int(await self.database.run("delete_documents", *fields)) if fields else 0

    async def advance(self, change: Change) -> Changed | None:
        numbers, *words = encode_change(change)
        holds, *entries = encode_holding(change.entries)
        reply = await self.database.run("advance", numbers, holds, *words, *entries)
        if not reply:
            return None
        (kind, *published), answers = reply
        outcomes = publish.decode_outcomes(published)
        if kind == b"refused":
            return Changed(tuple(publish.refuse_unless_all(outcomes)), written=False)
        items = (decode_item_answer(text.decode()) for text in answers)
        return Changed(tuple(outcomes), items=tuple(items))

    async def record(self, acts: Sequence[AuditEntry]) -> None:
        await self.database.run("record", *map(encode, acts))

    async def acts(
        self, tenant: str | None = None, before: int = NEVER, limit: int = 100
    ) -> list[AuditEntry]:
        found: list[AuditEntry] = []
        while before > 1 and len(found) < limit:
            rows = await self.database.ask(
                "XREVRANGE", "act", b"%d-0" % (before - 1), "-", "COUNT", max(limit, 100)
            )
            if not rows:
                break
            acts = [decode_audit_entry(*row) for row in rows]
            before = acts[-1].id
            found += [act for act in acts if tenant in (None, act.tenant)]
        return found[:limit]

    async def acts_after(self, after: int, limit: int) -> list[AuditEntry]:
        rows = await self.database.ask("XRANGE", "act", b"%d-0" % (after + 1), "+", "COUNT", limit)
        return [decode_audit_entry(*row) for row in rows]


def split_field(document: Document) -> tuple[bytes | int, ...]:
    expected = NONE if document.version is None else document.version
    return (
        make_document_field(document.kind, document.name),
        expected,
        document.expires_at,
        document.body,
    )


def encode_change(change: Change) -> Iterator[bytes | str | int]:
    """Encodes the documents of a change, preceded by their numbers."""
    guards = ((each.kind, each.name, each.version) for each in change.guards)
    expected = [each for each in (*guards, *change.expects) if each[2] is not None]
    saves = (*change.guards, *change.saves)
    items = [word for item in change.items for word in encode_item(item)]
    touch = int(change.touch_directory)
    yield f"{len(expected)} {len(saves)} {len(change.deletes)} {len(items)} {touch}"
    for kind, name, version in expected:
        yield from (make_document_field(kind, name), version or 0)
    for each in saves:
        yield from split_field(each)
    for kind, name in change.deletes:
        yield make_document_field(kind, name)
    yield from ("",) * 4 if change.outcome is None else split_field(change.outcome)
    yield from items


def encode_item(item: Item) -> list[bytes | str | int]:
    entries = () if item.entry is None else (item.entry,)
    return [
        item.verb.value,
        encode_id(item.id),
        item.seen.value,
        "" if item.as_of is None else item.as_of,
        item.reason,
        item.by,
        b"%014x" % (item.rank + RANK_ZERO),
        len(entries),
        *publish.make_arguments(entries),
    ]


def decode_document(field: bytes, text: bytes) -> Document:
    kind, _, name = field.decode().partition(" ")
    version, expires_at, body = text.split(b" ", 2)
    return Document(
        kind=kind, name=name, body=body, version=int(version), expires_at=int(expires_at)
    )


def decode_audit_entry(id: bytes, row: Sequence[bytes]) -> AuditEntry:
    at, _, text = row[1].partition(b" ")
    return msgspec.structs.replace(decode(text), id=int(id.partition(b"-")[0]), at=int(at))
