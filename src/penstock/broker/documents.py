"""Lists and decodes the documents of a feature."""

from typing import TypeVar

import msgspec

from penstock.model.documents import Document
from penstock.store import StoreRecords

PAGE_SIZE = 1_000
T = TypeVar("T")


async def list_documents(store: StoreRecords, kind: str, prefix: str = "") -> list[Document]:
    """Lists all documents of a kind whose names begin with `prefix`."""
    found: list[Document] = []
    after = prefix
    while True:
        page = await store.documents(kind, after, PAGE_SIZE)
        fitting = [each for each in page if each.name.startswith(prefix)]
        found += fitting
        if len(fitting) < PAGE_SIZE:
            return found
        after = page[-1].name


def decode_document(document: Document, kind: type[T]) -> T:
    return msgspec.json.decode(document.body, type=kind)
