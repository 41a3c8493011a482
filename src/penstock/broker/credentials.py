"""Manages API keys, roles and trusts in the store. Only digests of keys are stored."""

import secrets
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from penstock.broker.audit import note_changes
from penstock.broker.documents import decode_document, list_documents
from penstock.errors import Conflict, Forbidden, InvalidInput, NotFound, SlugConflict
from penstock.model.documents import Document
from penstock.model.fields import MAX_WORD_LENGTH
from penstock.model.message import MICROS_PER_SECOND, NEVER
from penstock.model.queue import EVERY
from penstock.model.settings import QueueSettings
from penstock.rules import validation
from penstock.rules.access import ROLES, Access, Key, PreviousKey, Trust, parse_grant
from penstock.store import Store

PREFIX = "psk_"
KEY, ROLE, TRUST = "key", "role", "trust"
encode = msgspec.json.Encoder().encode


class StoredRole(Struct, frozen=True):
    grants: tuple[str, ...]


def split(token: str) -> tuple[str, str] | None:
    """Returns the id and the digest of a key, or None if it is malformed."""
    id, underscore, secret = token.removeprefix(PREFIX).partition("_")
    if not (token.startswith(PREFIX) and underscore and secret and id.isalnum() and len(id) <= 32):
        return None
    return id, compute_digest(token)


def compute_digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def make_token(id: str) -> str:
    return f"{PREFIX}{id}_{secrets.token_urlsafe(32)}"


class Credentials:
    def __init__(self, store: Store) -> None:
        self.store = store

    async def create_tenant(self, tenant: str) -> None:
        """Creates the default scope and the default queue of a tenant, if missing."""
        if await self.store.scope(tenant, "default") is None:
            with suppress(SlugConflict):
                scope = await self.store.create_scope(tenant, "default")
                await self.store.create_queue(scope.id, "default", QueueSettings())

    async def create_key(self, key: Key, *, ttl: float | None = None) -> tuple[Key, str]:
        """Creates a key. The secret is returned only this once."""
        validation.check_text("name", key.name, MAX_WORD_LENGTH)
        await self.check_roles(key.tenant, key.roles)
        check_key(key)
        validation.check_number("ttl", ttl, 0.001, 3_153_600_000)
        await self.create_tenant(key.tenant)
        now = await self.store.now()
        id = secrets.token_hex(6)
        token = make_token(id)
        expires_at = NEVER if ttl is None else now + int(ttl * MICROS_PER_SECOND)
        made = msgspec.structs.replace(
            key, id=id, digest=compute_digest(token), created_at=now, expires_at=expires_at
        )
        note_changes({}, made)
        await self.save(KEY, id, made, 0)
        return made, token

    async def list_keys(self, tenant: str | None = None) -> list[Key]:
        found = [decode_document(each, Key) for each in await self.list_documents(KEY)]
        mine = [key for key in found if tenant in (None, key.tenant)]
        return sorted(mine, key=lambda key: (key.created_at, key.id))

    async def get_key(self, id: str, tenant: str | None = None) -> Key:
        return (await self._load_key(id, tenant))[0]

    async def _load_key(self, id: str, tenant: str | None) -> tuple[Key, int]:
        document = await self.store.document(KEY, id)
        if document is not None:
            key = decode_document(document, Key)
            if tenant in (None, key.tenant):
                return key, document.version or 0
        raise NotFound(f"no key with id {validation.clip(id)}")

    async def rotate_key(
        self, id: str, *, grace: float = 0.0, tenant: str | None = None
    ) -> tuple[Key, str]:
        """Replaces the secret of a key. The old one stays valid for `grace` seconds."""
        validation.check_number("grace", grace, 0, 30 * 86_400, needed=True)
        key, version = await self._load_key(id, tenant)
        now = await self.store.now()
        if key.state(now) != "active":
            raise Conflict(f"key {id} is {key.state(now)}")
        token = make_token(id)
        former = PreviousKey(key.digest, now + int(grace * MICROS_PER_SECOND)) if grace else None
        made = msgspec.structs.replace(key, digest=compute_digest(token), former=former)
        note_changes(key, made)
        await self.save(KEY, id, made, version)
        return made, token

    async def revoke_key(self, id: str, *, tenant: str | None = None) -> Key:
        """Revokes a key permanently. Servers notice within seconds."""
        key, version = await self._load_key(id, tenant)
        if key.revoked_at is None:
            revoked = msgspec.structs.replace(key, revoked_at=await self.store.now(), former=None)
            note_changes(key, revoked)
            await self.save(KEY, id, revoked, version)
            return revoked
        return key

    async def save_role(self, tenant: str, name: str, grants: Iterable[str]) -> StoredRole:
        validation.check_name("role", name)
        if name in ROLES:
            raise Forbidden(f"role {name!r} is built in")
        role = StoredRole(tuple(str(parse_grant(each)) for each in grants))
        stored = await self.store.document(ROLE, f"{tenant}/{name}")
        note_changes({} if stored is None else decode_document(stored, StoredRole), role)
        await self.save(ROLE, f"{tenant}/{name}", role)
        return role

    async def list_roles(self, tenant: str) -> dict[str, tuple[str, ...]]:
        """Returns the built-in and the custom roles."""
        own = {
            each.name.partition("/")[2]: decode_document(each, StoredRole).grants
            for each in await self.list_documents(ROLE, f"{tenant}/")
        }
        return {**ROLES, **own}

    async def delete_role(self, tenant: str, name: str) -> None:
        if not await self.store.delete_documents(ROLE, [f"{tenant}/{name}"]):
            raise NotFound(f"no role named {validation.clip(name)} that can be deleted")

    async def check_roles(self, tenant: str, roles: Iterable[str]) -> None:
        known = await self.list_roles(tenant)
        if unknown := set(roles) - known.keys():
            raise InvalidInput(
                f"no role named {', '.join(sorted(unknown))[:200]};"
                f" expected one of {', '.join(known)}"
            )

    async def save_trust(
        self, tenant: str, scope: str, trusted: str, grants: Iterable[str]
    ) -> Trust:
        for name in (scope, trusted):
            if await self.store.scope(tenant, name) is None:
                raise NotFound(f"no scope named {validation.clip(name)}")
        trust = Trust(scope, trusted, tuple(map(parse_grant, grants)))
        stored = await self.store.document(TRUST, f"{tenant}/{scope}/{trusted}")
        note_changes({} if stored is None else decode_document(stored, Trust), trust)
        await self.save(TRUST, f"{tenant}/{scope}/{trusted}", trust)
        return trust

    async def list_trusts(self, tenant: str) -> list[Trust]:
        return [
            decode_document(each, Trust) for each in await self.list_documents(TRUST, f"{tenant}/")
        ]

    async def delete_trust(self, tenant: str, scope: str, trusted: str) -> None:
        if not await self.store.delete_documents(TRUST, [f"{tenant}/{scope}/{trusted}"]):
            raise NotFound(
                f"scope {validation.clip(scope)} does not trust {validation.clip(trusted)}"
            )

    async def make_access(
        self, tenant: str, roles: Iterable[str], grants: Iterable[str], scopes: Iterable[str]
    ) -> Access:
        """Makes the access of a caller. Deleted roles are ignored."""
        known = await self.list_roles(tenant)
        texts = [*grants, *(text for role in roles for text in known.get(role, ()))]
        trusts = await self.list_trusts(tenant)
        return Access([parse_grant(text) for text in texts], tuple(scopes), trusts)

    async def list_documents(self, kind: str, prefix: str = "") -> list[Document]:
        return await list_documents(self.store, kind, prefix)

    async def save(self, kind: str, name: str, body: Any, version: int | None = None) -> None:
        document = Document(kind=kind, name=name, body=encode(body), version=version)
        (saved,) = await self.store.save_documents([document])
        if not saved:
            raise Conflict(f"{kind} {name} was changed by another request; try again")


def check_key(key: Key) -> None:
    if not (key.roles or key.grants):
        raise InvalidInput("a key needs at least one role or grant")
    for text in key.grants:
        parse_grant(text)
    for field, given in (("scopes", key.scopes), ("types", key.types)):
        if not given:
            raise InvalidInput(f"{field} is empty; omit it to allow all, or name at least one")
    for name in key.scopes:
        if name != EVERY:
            validation.check_name("scope", name)
    for name in key.types:
        validation.check_text("type", name, MAX_WORD_LENGTH)
    validation.check_name("tenant", key.tenant)
    validation.check_number("rate", key.rate, 0.001, 1_000_000)
