"""Manages scopes: their names for people, and whether they are paused or archived."""

from contextlib import suppress
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.documents import decode_document, list_documents
from penstock.broker.queues import QueueAdmin, check_allowed
from penstock.errors import Conflict, InvalidInput, NotFound, SlugConflict
from penstock.model.changes import Change
from penstock.model.documents import Document
from penstock.model.queue import SCOPE, Scope, ScopeProfile
from penstock.rules import validation

MAX_DISPLAY_NAME_LENGTH = 200
MAX_DESCRIPTION_LENGTH = 2_000
Condition: TypeAlias = Literal["active", "paused", "archived"]
encode = msgspec.json.Encoder().encode


class ScopeDetails(Struct, frozen=True):
    """A scope as people see it."""

    name: str
    state: Condition = "active"
    display_name: str = ""
    description: str = ""


class ScopeAdmin:
    """The scopes of one tenant, limited to those that `admin` allows."""

    def __init__(self, admin: QueueAdmin) -> None:
        self.admin = admin
        self.store = admin.store
        self.tenant = admin.tenant

    async def ensure(
        self, name: str, *, display_name: str | None = None, description: str | None = None
    ) -> ScopeDetails:
        """Creates the scope if it is missing, and sets the texts that are given."""
        validation.check_name("scope", name)
        check_allowed(self.admin, name)
        given = {
            field: check_line(field, text, longest)
            for field, text, longest in (
                ("display_name", display_name, MAX_DISPLAY_NAME_LENGTH),
                ("description", description, MAX_DESCRIPTION_LENGTH),
            )
            if text is not None
        }
        if await self.store.scope(self.tenant, name) is None:
            # Another request may create it first.
            with suppress(SlugConflict):
                await self.store.create_scope(self.tenant, name)
            self.admin.directory.forget()
        if given:
            await self._change(name, **given)
        return await self.get(name)

    async def get(self, name: str) -> ScopeDetails:
        check_allowed(self.admin, name)
        return make_details(await self._find(name), (await self._load(name))[0])

    async def list_scopes(self) -> list[ScopeDetails]:
        """Lists the scopes that the caller has access to."""
        stored = await list_documents(self.store, SCOPE, f"{self.tenant}/")
        profiles = {each.name: decode_document(each, ScopeProfile) for each in stored}
        scopes = {each.scope.name: each.scope for each in await self.admin.queues(scope=None)}
        return [
            make_details(scope, profiles.get(make_scope_name(self.tenant, name), ScopeProfile()))
            for name, scope in sorted(scopes.items())
        ]

    async def archive(self, name: str) -> ScopeDetails:
        """Stops publishing to all queues of the scope, and deliveries from them."""
        check_allowed(self.admin, name)
        await self._change(name, archived=True)
        return await self.get(name)

    async def unarchive(self, name: str) -> ScopeDetails:
        check_allowed(self.admin, name)
        await self._change(name, archived=False)
        return await self.get(name)

    async def _change(self, name: str, **fields: str | bool) -> None:
        await self._find(name)
        profile, version = await self._load(name)
        changed = replace(profile, **fields)
        if changed == profile:
            return
        document = Document(
            kind=SCOPE, name=make_scope_name(self.tenant, name), body=encode(changed),
            version=version,
        )  # fmt: skip
        if await self.store.advance(Change(guards=(document,), touch_directory=True)) is None:
            raise Conflict(f"scope {name!r} was changed by another request; try again")
        self.admin.directory.forget()

    async def _find(self, name: str) -> Scope:
        found = await self.store.scope(self.tenant, name)
        if found is None:
            raise NotFound(f"no scope named {validation.clip(name)}")
        return found

    async def _load(self, name: str) -> tuple[ScopeProfile, int]:
        """Returns the profile and the version of its document."""
        stored = await self.store.document(SCOPE, make_scope_name(self.tenant, name))
        if stored is None:
            return ScopeProfile(), 0
        return decode_document(stored, ScopeProfile), stored.version or 0


def make_details(scope: Scope, profile: ScopeProfile) -> ScopeDetails:
    state: Condition = "paused" if scope.paused else "active"
    return ScopeDetails(
        scope.name,
        "archived" if profile.archived else state,
        profile.display_name,
        profile.description,
    )


def make_scope_name(tenant: str, scope: str) -> str:
    return f"{tenant}/{scope}"


def check_line(field: str, text: str, longest: int) -> str:
    validation.check_text(field, text, longest, least=0)
    if not text.isprintable():
        raise InvalidInput(f"{field} {validation.clip(text)} must be one line of text")
    return text
