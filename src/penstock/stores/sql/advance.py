"""Writes a change of documents and messages in one transaction, if its guards hold."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from penstock.model.changes import Change, Changed, ItemAnswer, encode_answers
from penstock.model.documents import AuditEntry, Document
from penstock.model.store_types import AnswerKind, Entry, Published
from penstock.stores.sql import documents
from penstock.stores.sql.items import apply_items
from penstock.stores.sql.publish import any_refused, list_lockables
from penstock.stores.sql.transaction import Lockable, SqlTransaction

Tx = TypeVar("Tx", bound=SqlTransaction)
PublishAtomic = Callable[[Tx, Sequence[Entry]], Coroutine[Any, Any, list[Published]]]


async def advance(
    tx: Tx, change: Change, publish: PublishAtomic[Tx], act: AuditEntry | None
) -> Changed | None:
    await tx.lock(*list_change_lockables(change))
    if not await guards_hold(tx, change):
        return None
    published = tuple(await publish(tx, change.entries)) if change.entries else ()
    if any_refused(published):
        return Changed(published, written=False)
    for each in (*change.guards, *change.saves):
        await documents.save_one(tx, each)
    for kind, name in change.deletes:
        await tx.run("document_delete", kind=kind, name=name)
    if change.touch_directory:
        await tx.next_number("directory")
    answers = await apply_items(tx, change.items)
    if change.outcome is not None:
        await documents.save_one(tx, replace(change.outcome, body=encode_answers(answers)))
    if act is not None and (not answers or any_done(answers)):
        await documents.record(tx, [act])
    return Changed(published, items=answers)


def any_done(answers: Sequence[ItemAnswer]) -> bool:
    return any(answer.kind is AnswerKind.DONE for answer in answers)


def list_change_lockables(change: Change) -> list[Lockable]:
    """Lists everything the change reads or writes, in an order that all writers share."""
    names = [
        *((each.kind, each.name) for each in list_saved(change)),
        *((kind, name) for kind, name, _ in change.expects),
        *change.deletes,
    ]
    asked = {documents.make_lockable(*each) for each in names}
    return sorted(asked.union(*map(list_lockables, list_change_entries(change))))


def list_change_entries(change: Change) -> list[Entry]:
    return [*change.entries, *(item.entry for item in change.items if item.entry is not None)]


def list_saved(change: Change) -> list[Document]:
    outcome = () if change.outcome is None else (change.outcome,)
    return [*change.guards, *change.saves, *outcome]


async def guards_hold(tx: SqlTransaction, change: Change) -> bool:
    guards = ((each.kind, each.name, each.version) for each in change.guards)
    for kind, name, version in (*guards, *change.expects):
        if version not in (None, await documents.get_version(tx, kind, name)):
            return False
    return True
