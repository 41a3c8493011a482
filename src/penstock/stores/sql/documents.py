"""Stores documents of features (keys, callbacks, subscriptions) and the audit log."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from penstock.model.documents import AuditEntry, Document, acting
from penstock.model.store_types import Answer, AnswerKind
from penstock.stores.sql.transaction import Lockable, SqlTransaction

P = ParamSpec("P")
T = TypeVar("T")
Tx = TypeVar("Tx", bound=SqlTransaction)
Work: TypeAlias = Callable[Concatenate[SqlTransaction, P], Coroutine[Any, Any, T]]
OwnWork: TypeAlias = Callable[Concatenate[Tx, P], Coroutine[Any, Any, T]]


async def save(tx: SqlTransaction, documents: Sequence[Document]) -> list[bool]:
    await tx.lock(*sorted({make_lockable(each.kind, each.name) for each in documents}))
    return [await save_one(tx, each) for each in documents]


def make_lockable(kind: str, name: str) -> Lockable:
    return ("document", 0, f"{kind}/{name}")


async def get_version(tx: SqlTransaction, kind: str, name: str) -> int:
    """Returns 0 if there is no such document."""
    found = await get(tx, kind, name)
    return found.version or 0 if found is not None else 0


async def save_one(tx: SqlTransaction, document: Document) -> bool:
    stored = await get_version(tx, document.kind, document.name)
    if document.version not in (None, stored):
        return False
    await tx.run(
        "document_save",
        kind=document.kind,
        name=document.name,
        body=document.body,
        version=stored + 1,
        expires_at=document.expires_at,
    )
    return True


async def get(tx: SqlTransaction, kind: str, name: str) -> Document | None:
    row = await tx.one("document", kind=kind, name=name, now=tx.now)
    return None if row is None else make_document(row)


async def list_documents(tx: SqlTransaction, kind: str, after: str, limit: int) -> list[Document]:
    rows = await tx.all("documents", kind=kind, after=after, limit=limit, now=tx.now)
    return [make_document(row) for row in rows]


def make_document(row: Sequence[Any]) -> Document:
    kind, name, body, version, expires_at = row
    return Document(
        kind=kind, name=name, body=bytes(body), version=version, expires_at=expires_at
    )  # fmt: skip


async def delete(tx: SqlTransaction, kind: str, names: Sequence[str]) -> int:
    # A change may have read one as its guard.
    if names:
        await tx.lock(*sorted({make_lockable(kind, name) for name in names}))
    return sum([await tx.run("document_delete", kind=kind, name=name) for name in sorted(names)])


def with_audit(work: OwnWork[Tx, P, T]) -> OwnWork[Tx, P, T]:
    """Writes the audit entry in the same transaction as the change."""
    act = acting.get()
    if act is None:
        return work

    async def run_recorded(tx: Tx, /, *args: P.args, **kwargs: P.kwargs) -> T:
        done = await work(tx, *args, **kwargs)
        if did_something(done):
            await record(tx, [act])
        return done

    return run_recorded


def did_something(done: object) -> bool:
    if isinstance(done, list):
        return any(map(did_something, done))
    if isinstance(done, Answer):
        return done.kind is AnswerKind.DONE
    # A count or a boolean; operations that only raise return None.
    return done is None or bool(done)


async def record(tx: SqlTransaction, acts: Sequence[AuditEntry]) -> None:
    for act in acts:
        await tx.run(
            "act_save",
            at=tx.now,
            tenant=act.tenant,
            subject=act.subject,
            verb=act.verb,
            target=act.target,
            scope=act.scope,
            request_id=act.request_id,
            detail=act.detail,
        )


async def list_audit(
    tx: SqlTransaction, tenant: str | None, before: int, limit: int
) -> list[AuditEntry]:
    """Lists audit entries, newest first."""
    rows = await tx.all("acts", tenant=tenant, before=before, limit=limit)
    return [make_audit_entry(row) for row in rows]


async def list_audit_after(tx: SqlTransaction, after: int, limit: int) -> list[AuditEntry]:
    return [make_audit_entry(row) for row in await tx.all("acts_after", after=after, limit=limit)]


def make_audit_entry(row: Sequence[Any]) -> AuditEntry:
    id, at, tenant, subject, verb, target, scope, request_id, detail = row
    return AuditEntry(
        id=id, at=at, tenant=tenant, subject=subject, verb=verb, target=target, scope=scope,
        request_id=request_id, detail=detail,
    )  # fmt: skip


async def sweep(tx: SqlTransaction, limit: int) -> int:
    """Deletes expired documents and audit entries past their retention."""
    old = await tx.all("old_documents", now=tx.now, limit=limit)
    for kind, name in old:
        await tx.run("drop_document", kind=kind, name=name, now=tx.now)
    return len(old) + await tx.run("drop_acts", now=tx.now, limit=limit)
