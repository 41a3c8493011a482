"""What features keep beside the queues, and the record of who did what."""

from collections.abc import Sequence

import msgspec

from penstock.document import Act, Document
from penstock.message import NEVER
from penstock.stores.redis.engine import Engine
from penstock.stores.redis.texts import NONE

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Act).decode


class Documents(Engine):
    async def save_documents(self, given: Sequence[Document]) -> list[bool]:
        if not given:
            return []
        words = [word for each in given for word in words_of(each)]
        return [answer == 1 for answer in await self.run("save_documents", *words)]

    async def document(self, kind: str, name: str) -> Document | None:
        field = field_of(kind, name)
        found = await self.run("documents", b"[" + field, b"[" + field, 1)
        return document_of(*found) if found else None

    async def documents(self, kind: str, after: str = "", limit: int = 1_000) -> list[Document]:
        # No name of this kind sorts behind the one that ends with the byte after a space.
        first, last = b"(" + field_of(kind, after), b"(" + kind.encode() + b"!"
        found = await self.run("documents", first, last, limit)
        return [document_of(*pair) for pair in zip(found[::2], found[1::2], strict=True)]

    async def delete_documents(self, kind: str, names: Sequence[str]) -> int:
        fields = [field_of(kind, name) for name in names]
        return int(await self.run("delete_documents", *fields)) if fields else 0

    async def record(self, acts: Sequence[Act]) -> None:
        await self.run("record", *map(encode, acts))

    async def acts(
        self, tenant: str | None = None, before: int = NEVER, limit: int = 100
    ) -> list[Act]:
        found: list[Act] = []
        while before > 1 and len(found) < limit:
            rows = await self.ask(
                "XREVRANGE", "act", b"%d-0" % (before - 1), "-", "COUNT", max(limit, 100)
            )
            if not rows:
                break
            acts = [act_of(*row) for row in rows]
            before = acts[-1].id
            found += [act for act in acts if tenant in (None, act.tenant)]
        return found[:limit]


def field_of(kind: str, name: str) -> bytes:
    return f"{kind} {name}".encode()


def words_of(document: Document) -> tuple[bytes | int, ...]:
    expected = NONE if document.version is None else document.version
    return field_of(document.kind, document.name), expected, document.expires_at, document.body


def document_of(field: bytes, text: bytes) -> Document:
    kind, _, name = field.decode().partition(" ")
    version, expires_at, body = text.split(b" ", 2)
    return Document(
        kind=kind, name=name, body=body, version=int(version), expires_at=int(expires_at)
    )


def act_of(id: bytes, row: Sequence[bytes]) -> Act:
    at, _, text = row[1].partition(b" ")
    return msgspec.structs.replace(decode(text), id=int(id.partition(b"-")[0]), at=int(at))
