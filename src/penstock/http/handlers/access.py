"""Who may do what: API keys, roles, trusts, and the record of who did."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import Path, Query

from penstock.broker.credentials import Credentials
from penstock.errors import Forbidden
from penstock.http.auth.principal import OWNER, Extent
from penstock.http.context import RequestContext
from penstock.http.routing import Alone, QueueName, RouteTable, make_body_dependency
from penstock.model.documents import AuditEntry
from penstock.model.message import NEVER
from penstock.rules.access import EVERY, ROLES, Grant, Key, Right, grant_of
from penstock.wire.access import (
    AuditPage,
    Keys,
    KeyView,
    NewKey,
    NewRole,
    Roles,
    RoleView,
    Rotate,
    Trusts,
    TrustView,
    make_audit_view,
    make_key_view,
    make_trust_view,
)

access = RouteTable("access")
# How far one request looks for the acts of a few scopes.
ACT_PAGE, MAX_ACT_PAGES = 1_000, 10
SECOND = 1_000_000
KeyId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,32}$", description="The id of a key.")]


def get_credentials(call: RequestContext) -> Credentials:
    return Credentials(call.service.store)


def check_own_key(call: RequestContext) -> str | None:
    """The tenant whose keys the caller sees; None is all."""
    caller = call.caller
    of_all = caller.tenant == OWNER and caller.access.allows(Right.ACCESS, EVERY)
    return None if of_all else caller.tenant


def gives_access(call: RequestContext, scopes: Iterable[str]) -> bool:
    return all(call.caller.access.may_grant(Right.ACCESS, scope) for scope in scopes)


def check_scope(call: RequestContext, scope: str) -> None:
    if not gives_access(call, [scope]):
        raise Forbidden(f"this caller may not manage the access to scope {scope!r}")


def check_grants(
    call: RequestContext, grants: Iterable[str], scopes: Iterable[str] = (EVERY,)
) -> None:
    """Nobody gives what is not theirs."""
    mine = call.caller.access
    for text in grants:
        for right in list_given_rights(grant_of(text)):
            if not all(mine.may_grant(right, scope) for scope in scopes):
                raise Forbidden(f"who gives {text!r} must have {right.value} for all queues")


async def check_key(call: RequestContext, key: Key) -> None:
    """Nobody makes, renews or revokes a key that may do more than they may themselves."""
    caller = call.caller
    if not gives_access(call, key.scopes):
        raise Forbidden("this caller may not manage the access to all scopes of that key")
    roles = await get_credentials(call).list_roles(key.tenant)
    granted = [*key.grants, *(text for role in key.roles for text in roles.get(role, ()))]
    check_grants(call, granted, key.scopes)
    if EVERY not in caller.types and not caller.types.issuperset(key.types):
        raise Forbidden(f"this caller has types {', '.join(sorted(caller.types))} to give, no more")
    if caller.rate is not None and (key.rate is None or key.rate > caller.rate):
        raise Forbidden(f"this caller has a rate of {caller.rate:g} to give, no more")
    if key.expires_at > caller.expires_at:
        raise Forbidden("the key would end later than that of this caller")


def list_given_rights(grant: Grant) -> list[Right]:
    if grant.deny:
        return []
    if grant.right == EVERY:
        return [right for right in Right if right is not Right.SHELL]
    return [Right(grant.right)]


@access.add(
    "POST", "/v1/keys", "Create an API key", KeyView, takes=NewKey, status=201,
    right=Right.ACCESS, extent=Extent.SCOPE,
    example={"name": "checkout", "roles": ["producer"], "ttl": 86400},
)  # fmt: skip
async def create_key(call: Alone, new: Annotated[NewKey, make_body_dependency(NewKey)]) -> KeyView:
    """The answer is the only one that ever has the key itself."""
    tenant = new.tenant or call.caller.tenant
    if tenant != call.caller.tenant and check_own_key(call) is not None:
        raise Forbidden("keys of other tenants are for the owner of the store to make")
    made = get_credentials(call)
    await made.check_roles(tenant, new.roles)
    now = await call.service.store.now()
    key = Key(
        id="",
        name=new.name,
        tenant=tenant,
        roles=tuple(new.roles),
        grants=tuple(new.grants),
        scopes=tuple(new.scopes),
        types=tuple(new.types),
        rate=new.rate,
        created_by=call.caller.subject,
        expires_at=NEVER if new.ttl is None else now + int(new.ttl * SECOND),
    )
    await check_key(call, key)
    act_on(call, key)
    kept, token = await made.create_key(key, ttl=new.ttl)
    return make_key_view(kept, now, token)


def act_on(call: RequestContext, key: Key) -> None:
    """An act on the key of one scope is that scope's, any other the tenant's."""
    if len(key.scopes) == 1 and EVERY not in key.scopes:
        call.act_in(key.scopes[0])


@access.add("GET", "/v1/keys", "List API keys", Keys, right=Right.ACCESS)
async def list_keys(call: Alone) -> Keys:
    """Those whose scopes the caller manages the access to."""
    now = await call.service.store.now()
    found = await get_credentials(call).list_keys(check_own_key(call))
    return Keys([make_key_view(key, now) for key in found if gives_access(call, key.scopes)])


@access.add(
    "POST", "/v1/keys/{id}/rotate", "Replace the secret of a key", KeyView, takes=Rotate,
    right=Right.ACCESS, extent=Extent.SCOPE, example={"grace": 3600},
)  # fmt: skip
async def rotate_key(
    call: Alone, id: KeyId, how: Annotated[Rotate, make_body_dependency(Rotate)]
) -> KeyView:
    made = get_credentials(call)
    old = await made.get_key(id, check_own_key(call))
    await check_key(call, old)
    act_on(call, old)
    key, token = await made.rotate_key(id, grace=how.grace, tenant=check_own_key(call))
    return make_key_view(key, await call.service.store.now(), token)


@access.add(
    "DELETE", "/v1/keys/{id}", "Revoke a key", KeyView, right=Right.ACCESS, extent=Extent.SCOPE
)
async def revoke_key(call: Alone, id: KeyId) -> KeyView:
    made = get_credentials(call)
    old = await made.get_key(id, check_own_key(call))
    await check_key(call, old)
    act_on(call, old)
    key = await made.revoke_key(id, tenant=check_own_key(call))
    return make_key_view(key, await call.service.store.now())


@access.add("GET", "/v1/roles", "List roles", Roles, right=Right.ACCESS)
async def list_roles(call: Alone) -> Roles:
    found = await get_credentials(call).list_roles(call.caller.tenant)
    return Roles([RoleView(name, grants, name in ROLES) for name, grants in found.items()])


@access.add(
    "PUT", "/v1/roles/{name}", "Create or change a role", RoleView, takes=NewRole,
    right=Right.ACCESS, extent=Extent.TENANT,
    example={"grants": ["publish:mail-*", "read", "-read:payroll"]},
)  # fmt: skip
async def save_role(
    call: Alone, name: QueueName, new: Annotated[NewRole, make_body_dependency(NewRole)]
) -> RoleView:
    check_grants(call, new.grants)
    role = await get_credentials(call).save_role(call.caller.tenant, name, new.grants)
    return RoleView(name, role.grants, False)


@access.add(
    "DELETE", "/v1/roles/{name}", "Delete a role", None, status=204, right=Right.ACCESS,
    extent=Extent.TENANT,
)  # fmt: skip
async def delete_role(call: Alone, name: QueueName) -> None:
    await get_credentials(call).delete_role(call.caller.tenant, name)


@access.add("GET", "/v1/trusts", "List which scopes trust which", Trusts, right=Right.ACCESS)
async def list_trusts(call: Alone) -> Trusts:
    """Those of scopes that the caller manages the access to."""
    found = await get_credentials(call).list_trusts(call.caller.tenant)
    return Trusts([make_trust_view(each) for each in found if gives_access(call, [each.scope])])


@access.add(
    "PUT", "/v1/trusts/{name}/{trusted}", "Let callers of a scope into another", TrustView,
    takes=NewRole, right=Right.ACCESS, extent=Extent.SCOPE, example={"grants": ["publish:inbox"]},
)  # fmt: skip
async def save_trust(
    call: Alone,
    name: QueueName,
    trusted: QueueName,
    new: Annotated[NewRole, make_body_dependency(NewRole)],
) -> TrustView:
    check_scope(call, name)
    check_grants(call, new.grants, [name])
    call.act_in(name)
    saved = await get_credentials(call).save_trust(call.caller.tenant, name, trusted, new.grants)
    return make_trust_view(saved)


@access.add(
    "DELETE", "/v1/trusts/{name}/{trusted}", "Let them in no more", None, status=204,
    right=Right.ACCESS, extent=Extent.SCOPE,
)  # fmt: skip
async def delete_trust(call: Alone, name: QueueName, trusted: QueueName) -> None:
    check_scope(call, name)
    call.act_in(name)
    await get_credentials(call).delete_trust(call.caller.tenant, name, trusted)


@access.add("GET", "/v1/audit", "Who did what, and who was refused", AuditPage, right=Right.ACCESS)
async def list_acts(
    call: Alone,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(max_length=200, description="Of the page before.")] = None,
) -> AuditPage:
    """The newest first. What changed the store was written by the transaction that did. Callers
    who do not manage the access to all scopes see what was done in theirs; such a page may be
    short, and ends the list only if it has no cursor."""
    tokens, filter = call.service.tokens, ("audit", call.caller.tenant)
    before = NEVER if cursor is None else tokens.unseal_cursor(cursor, filter)
    found, last = await find_acts(call, before, limit)
    return AuditPage(
        [make_audit_view(each) for each in found],
        tokens.seal_cursor(last, filter) if last else None,
    )


async def find_acts(
    call: RequestContext, before: int, limit: int
) -> tuple[list[AuditEntry], int | None]:
    """Acts the caller may see, and where to go on if there may be more."""
    caller, store = call.caller, call.service.store
    if caller.access.allows(Right.ACCESS, EVERY):
        found = await store.acts(check_own_key(call), before, limit)
        return found, found[-1].id if len(found) == limit else None
    seen: list[AuditEntry] = []
    for _ in range(MAX_ACT_PAGES):
        page = await store.acts(caller.tenant, before, ACT_PAGE)
        for act in page:
            if act.scope and caller.access.may_grant(Right.ACCESS, act.scope):
                seen.append(act)
                if len(seen) == limit:
                    return seen, act.id
        if len(page) < ACT_PAGE:
            return seen, None
        before = page[-1].id
    return seen, before
