"""Knows which batch of a lake has a message that retention removed from the store."""

import msgspec
from msgspec import Struct

from penstock.errors import Archived
from penstock.model.documents import Document, acting
from penstock.store import Store

KIND = "lake_batch"
# Batches of several lakes may have the same message.
MAX_BATCHES = 20


class LakeBatch(Struct, frozen=True):
    """A batch of a lake. The ids of its messages are from `first` to `last`."""

    lake: str
    where: str
    batch: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """Sorts by the last id, so that the batch of a message is found by one look."""
        return f"{self.last:019}/{self.lake}/{self.batch:010}"


decode = msgspec.json.Decoder(LakeBatch).decode


async def save_batch(store: Store, batch: LakeBatch) -> None:
    # An export is no act of an operator.
    acting.set(None)
    await store.save_documents(
        [Document(kind=KIND, name=batch.name, body=msgspec.json.encode(batch))]
    )


async def find_batch(store: Store, id: int) -> LakeBatch | None:
    found = await store.documents(KIND, f"{id:019}", MAX_BATCHES)
    batches = [decode(document.body) for document in found]
    return next((batch for batch in batches if batch.first <= id <= batch.last), None)


async def explain_archived(store: Store, id: int, *, local: bool) -> Archived:
    """Makes the error for a message that retention removed. Only local callers learn the path."""
    gone = f"message {id} ended and was removed by retention"
    batch = await find_batch(store, id)
    if batch is None:
        return Archived(gone)
    advice = f": penstock show {id} --lake {batch.where}" if local else ""
    error = Archived(f"{gone}; batch {batch.batch} of lake {batch.lake} has it{advice}")
    error.details = (("lake", batch.lake), ("batch", str(batch.batch)))
    return error
