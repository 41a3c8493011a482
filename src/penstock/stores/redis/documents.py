"""Stores documents of features and the audit log."""

from collections.abc import Sequence

import msgspec

from penstock.model.documents import AuditEntry, Document
from penstock.model.message import NEVER
from penstock.stores.redis.codec import NONE
from penstock.stores.redis.database import RedisDatabase

encode = msgspec.json.Encoder().encode
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
        field = make_field(kind, name)
        found = await self.database.run("documents", b"[" + field, b"[" + field, 1)
        return decode_document(*found) if found else None

    async def documents(self, kind: str, after: str = "", limit: int = 1_000) -> list[Document]:
        # The kind followed by "!", the byte after a space, sorts behind all names of the kind.
        first, last = b"(" + make_field(kind, after), b"(" + kind.encode() + b"!"
        found = await self.database.run("documents", first, last, limit)
        return [decode_document(*pair) for pair in zip(found[::2], found[1::2], strict=True)]

    async def delete_documents(self, kind: str, names: Sequence[str]) -> int:
        fields = [make_field(kind, name) for name in names]
        return int(await self.database.run("delete_documents", *fields)) if fields else 0

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


def make_field(kind: str, name: str) -> bytes:
    return f"{kind} {name}".encode()


def split_field(document: Document) -> tuple[bytes | int, ...]:
    expected = NONE if document.version is None else document.version
    return make_field(document.kind, document.name), expected, document.expires_at, document.body


def decode_document(field: bytes, text: bytes) -> Document:
    kind, _, name = field.decode().partition(" ")
    version, expires_at, body = text.split(b" ", 2)
    return Document(
        kind=kind, name=name, body=body, version=int(version), expires_at=int(expires_at)
    )


def decode_audit_entry(id: bytes, row: Sequence[bytes]) -> AuditEntry:
    at, _, text = row[1].partition(b" ")
    return msgspec.structs.replace(decode(text), id=int(id.partition(b"-")[0]), at=int(at))
