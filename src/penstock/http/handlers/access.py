"""Routes for API keys, roles, trusts and the audit log."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Annotated

from msgspec import Meta

from penstock.broker.audit import AuditLog, AuditQuery
from penstock.broker.credentials import Credentials
from penstock.errors import Forbidden
from penstock.http.auth.principal import OWNER, RightScope
from penstock.http.context import RequestContext, cut_page
from penstock.http.operations import OperationTable
from penstock.model.message import MICROS_PER_SECOND, NEVER
from penstock.model.queue import EVERY
from penstock.rules.access import ROLES, Grant, Key, Right, parse_grant
from penstock.rules.audit_chain import parse_seal
from penstock.wire.access import (
    AuditPage,
    AuditReportView,
    Keys,
    KeyView,
    NewKey,
    NewRole,
    Roles,
    RoleView,
    RotateRequest,
    SealView,
    Trusts,
    TrustView,
    make_audit_report,
    make_audit_view,
    make_key_view,
    make_trust_view,
)
from penstock.wire.fields import Cursor, Name, PageLimit, Time, Word, to_moment

access = OperationTable("access", scoped=False)
SealText = Annotated[
    str, Meta(max_length=100, description="NUMBER:HASH, kept from an earlier seal.")
]
KeyId = Annotated[str, Meta(pattern=r"^[0-9a-f]{1,32}$", description="The id of an API key.")]


def get_credentials(call: RequestContext) -> Credentials:
    return Credentials(call.service.store)


def check_own_key(call: RequestContext) -> str | None:
    """Returns the tenant whose keys the caller sees. None means all tenants."""
    caller = call.caller
    of_all = caller.tenant == OWNER and caller.access.allows(Right.ACCESS, EVERY)
    return None if of_all else caller.tenant


def gives_access(call: RequestContext, scopes: Iterable[str]) -> bool:
    return all(call.caller.access.may_grant(Right.ACCESS, scope) for scope in scopes)


def check_scope(call: RequestContext, scope: str) -> None:
    if not gives_access(call, [scope]):
        raise Forbidden(f"caller may not manage access to scope {scope!r}")


def check_grants(
    call: RequestContext, grants: Iterable[str], scopes: Iterable[str] = (EVERY,)
) -> None:
    """Refuses grants that the caller does not hold."""
    mine = call.caller.access
    for text in grants:
        for right in list_given_rights(parse_grant(text)):
            if not all(mine.may_grant(right, scope) for scope in scopes):
                raise Forbidden(f"granting {text!r} requires {right.value} on all queues")


async def check_key(call: RequestContext, key: Key) -> None:
    """Refuses to manage a key that has more rights than its manager."""
    caller = call.caller
    if not gives_access(call, key.scopes):
        raise Forbidden("caller may not manage access to all scopes of this key")
    roles = await get_credentials(call).list_roles(key.tenant)
    granted = [*key.grants, *(text for role in key.roles for text in roles.get(role, ()))]
    check_grants(call, granted, key.scopes)
    if EVERY not in caller.types and not caller.types.issuperset(key.types):
        raise Forbidden(f"caller can grant only types {', '.join(sorted(caller.types))}")
    if caller.rate is not None and (key.rate is None or key.rate > caller.rate):
        raise Forbidden(f"caller can grant a rate of at most {caller.rate:g}")
    if key.expires_at > caller.expires_at:
        raise Forbidden("the key would expire after the caller's own key")


def list_given_rights(grant: Grant) -> list[Right]:
    if grant.deny:
        return []
    if grant.right == EVERY:
        return [right for right in Right if right is not Right.SHELL]
    return [Right(grant.right)]


@access.add(
    "POST", "/v1/keys", "Create an API key", KeyView, takes=NewKey, status=201,
    right=Right.ACCESS, extent=RightScope.SCOPE,
    example={"name": "checkout", "roles": ["producer"], "ttl": 86400},
)  # fmt: skip
async def create_key(call: RequestContext, new: NewKey) -> KeyView:
    """The response is the only one that contains the key itself."""
    tenant = new.tenant or call.caller.tenant
    if tenant != call.caller.tenant and check_own_key(call) is not None:
        raise Forbidden("only the owner of the store can create keys for other tenants")
    made = get_credentials(call)
    await made.check_roles(tenant, new.roles)
    now = await call.broker.now()
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
        expires_at=NEVER if new.ttl is None else now + int(new.ttl * MICROS_PER_SECOND),
    )
    await check_key(call, key)
    act_on(call, key)
    kept, token = await made.create_key(key, ttl=new.ttl)
    return make_key_view(kept, now, token)


def act_on(call: RequestContext, key: Key) -> None:
    """Audits an act on a key under the key's scope if it has exactly one."""
    if len(key.scopes) == 1 and EVERY not in key.scopes:
        call.act_in(key.scopes[0])


@access.add("GET", "/v1/keys", "List API keys", Keys, right=Right.ACCESS)
async def list_keys(
    call: RequestContext, limit: PageLimit = 1_000, cursor: Cursor | None = None
) -> Keys:
    """Lists the keys whose scopes the caller manages."""
    now = await call.broker.now()
    found = await get_credentials(call).list_keys(check_own_key(call))
    seen = [key for key in found if gives_access(call, key.scopes)]
    page, next_cursor = cut_page(call, seen, attrgetter("id"), limit, cursor, "keys")
    return Keys([make_key_view(key, now) for key in page], next_cursor)


@access.add(
    "POST", "/v1/keys/{id}/rotate", "Rotate an API key", KeyView, takes=RotateRequest,
    right=Right.ACCESS, extent=RightScope.SCOPE, example={"grace": 3600},
)  # fmt: skip
async def rotate_key(call: RequestContext, id: KeyId, how: RotateRequest) -> KeyView:
    made = get_credentials(call)
    old = await made.get_key(id, check_own_key(call))
    await check_key(call, old)
    act_on(call, old)
    key, token = await made.rotate_key(id, grace=how.grace, tenant=check_own_key(call))
    return make_key_view(key, await call.broker.now(), token)


@access.add(
    "DELETE",
    "/v1/keys/{id}",
    "Revoke an API key",
    KeyView,
    right=Right.ACCESS,
    extent=RightScope.SCOPE,
)
async def revoke_key(call: RequestContext, id: KeyId) -> KeyView:
    made = get_credentials(call)
    old = await made.get_key(id, check_own_key(call))
    await check_key(call, old)
    act_on(call, old)
    key = await made.revoke_key(id, tenant=check_own_key(call))
    return make_key_view(key, await call.broker.now())


@access.add("GET", "/v1/roles", "List roles", Roles, right=Right.ACCESS)
async def list_roles(call: RequestContext) -> Roles:
    found = await get_credentials(call).list_roles(call.caller.tenant)
    return Roles([RoleView(name, grants, name in ROLES) for name, grants in found.items()])


@access.add(
    "PUT", "/v1/roles/{name}", "Create or update a role", RoleView, takes=NewRole,
    right=Right.ACCESS, extent=RightScope.TENANT,
    example={"grants": ["publish:mail-*", "read", "-read:payroll"]},
)  # fmt: skip
async def save_role(call: RequestContext, name: Name, new: NewRole) -> RoleView:
    check_grants(call, new.grants)
    role = await get_credentials(call).save_role(call.caller.tenant, name, new.grants)
    return RoleView(name, role.grants, False)


@access.add(
    "DELETE", "/v1/roles/{name}", "Delete a role", None, status=204, right=Right.ACCESS,
    extent=RightScope.TENANT,
)  # fmt: skip
async def delete_role(call: RequestContext, name: Name) -> None:
    await get_credentials(call).delete_role(call.caller.tenant, name)


@access.add("GET", "/v1/trusts", "List trusts between scopes", Trusts, right=Right.ACCESS)
async def list_trusts(call: RequestContext) -> Trusts:
    """Lists the trusts of scopes that the caller manages."""
    found = await get_credentials(call).list_trusts(call.caller.tenant)
    return Trusts([make_trust_view(each) for each in found if gives_access(call, [each.scope])])


@access.add(
    "PUT", "/v1/trusts/{name}/{trusted}", "Create or update a trust", TrustView,
    takes=NewRole, right=Right.ACCESS, extent=RightScope.SCOPE,
    example={"grants": ["publish:inbox"]},
)  # fmt: skip
async def save_trust(call: RequestContext, name: Name, trusted: Name, new: NewRole) -> TrustView:
    """Grants callers of scope `trusted` access to scope `name`."""
    check_scope(call, name)
    check_grants(call, new.grants, [name])
    call.act_in(name)
    saved = await get_credentials(call).save_trust(call.caller.tenant, name, trusted, new.grants)
    return make_trust_view(saved)


@access.add(
    "DELETE", "/v1/trusts/{name}/{trusted}", "Delete a trust", None, status=204,
    right=Right.ACCESS, extent=RightScope.SCOPE,
)  # fmt: skip
async def delete_trust(call: RequestContext, name: Name, trusted: Name) -> None:
    check_scope(call, name)
    call.act_in(name)
    await get_credentials(call).delete_trust(call.caller.tenant, name, trusted)


@access.add("GET", "/v1/audit", "List audit log entries", AuditPage, right=Right.ACCESS)
async def list_audit_entries(
    call: RequestContext,
    limit: PageLimit = 100,
    cursor: Cursor | None = None,
    subject: Word | None = None,
    verb: Word | None = None,
    target: Word | None = None,
    request_id: Word | None = None,
    refused: bool | None = None,
    since: Time | None = None,
    until: Time | None = None,
) -> AuditPage:
    """Newest first. A change is audited in the transaction that makes it; denied requests are
    counted. `target` matches a part of the target. Callers that manage only some scopes see the
    entries of those scopes. Pages may be short: the list ends when a page has no cursor."""
    filters = (subject, verb, target, request_id, refused, since, until)
    tokens, filter = call.service.tokens, ("audit", call.caller.tenant, *map(str, filters))
    query = AuditQuery(
        tenant=check_own_key(call),
        subject=subject,
        verb=verb,
        target=target,
        request_id=request_id,
        refused=refused,
        since=0 if since is None else to_moment(since),
        until=NEVER if until is None else to_moment(until),
        before=NEVER if cursor is None else tokens.unseal_cursor(cursor, filter),
        limit=limit,
    )
    found = await AuditLog(call.service.store).find(query, call.caller.may_see_entry)
    return AuditPage(
        [make_audit_view(each) for each in found.entries],
        tokens.seal_cursor(found.before, filter) if found.before else None,
    )


@access.add(
    "GET", "/v1/audit/verify", "Verify the audit log", AuditReportView,
    right=Right.ACCESS, extent=RightScope.STORE,
)  # fmt: skip
async def verify_audit(call: RequestContext, known: SealText | None = None) -> AuditReportView:
    """Compares every entry with the hash chain. `known` is a seal that was kept elsewhere."""
    seal = None if known is None else parse_seal(known)
    return make_audit_report(await AuditLog(call.service.store).verify(seal))


@access.add(
    "GET", "/v1/audit/seal", "Get the last seal of the audit log", SealView,
    right=Right.ACCESS, extent=RightScope.STORE,
)  # fmt: skip
async def get_audit_seal(call: RequestContext) -> SealView:
    """Keep it outside the store, to verify the log against it later."""
    return SealView(str(await AuditLog(call.service.store).head()))
