"""Who may do what: API keys, roles, trusts, and the record of who did."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import Path, Query

from penstock.access import EVERY, ROLES, Grant, Key, Right, grant_of
from penstock.credentials import Credentials
from penstock.errors import Forbidden
from penstock.http.call import Call
from penstock.http.caller import OWNER
from penstock.http.route import Alone, QueueName, Routes, sent
from penstock.message import NEVER
from penstock.wire.access import (
    Acts,
    Keys,
    KeyTold,
    NewKey,
    NewRole,
    Roles,
    RoleTold,
    Rotate,
    Trusts,
    TrustTold,
    act_of,
    key_of,
    trust_of,
)

access = Routes("access")
KeyId = Annotated[str, Path(pattern=r"^[0-9a-f]{1,32}$", description="The id of a key.")]


def credentials(call: Call) -> Credentials:
    return Credentials(call.service.store)


def own(call: Call) -> str | None:
    """The tenant whose keys the caller sees; None is all."""
    return None if call.caller.tenant == OWNER else call.caller.tenant


def refuse_more(call: Call, grants: Iterable[str], scopes: Iterable[str] = (EVERY,)) -> None:
    """Nobody gives what is not theirs."""
    mine = call.caller.access
    for text in grants:
        for right in given_by(grant_of(text)):
            if not all(mine.gives(right, scope) for scope in scopes):
                raise Forbidden(f"who gives {text!r} must have {right.value} for all queues")


def given_by(grant: Grant) -> list[Right]:
    if grant.deny:
        return []
    if grant.right == EVERY:
        return [right for right in Right if right is not Right.SHELL]
    return [Right(grant.right)]


@access.add(
    "POST", "/v1/keys", "Create an API key", KeyTold, takes=NewKey, status=201,
    right=Right.ACCESS, example={"name": "checkout", "roles": ["producer"], "ttl": 86400},
)  # fmt: skip
async def create_key(call: Alone, new: Annotated[NewKey, sent(NewKey)]) -> KeyTold:
    """The answer is the only one that ever has the key itself."""
    tenant = new.tenant or call.caller.tenant
    if tenant != call.caller.tenant and own(call) is not None:
        raise Forbidden("keys of other tenants are for the owner of the store to make")
    made = credentials(call)
    await made.check_roles(tenant, new.roles)
    known = await made.roles(tenant)
    refuse_more(call, [*new.grants, *(g for role in new.roles for g in known[role])], new.scopes)
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
    )
    kept, token = await made.create_key(key, ttl=new.ttl)
    return key_of(kept, await call.service.store.now(), token)


@access.add("GET", "/v1/keys", "List API keys", Keys, right=Right.ACCESS)
async def list_keys(call: Alone) -> Keys:
    now = await call.service.store.now()
    return Keys([key_of(key, now) for key in await credentials(call).keys(own(call))])


@access.add(
    "POST", "/v1/keys/{id}/rotate", "Replace the secret of a key", KeyTold, takes=Rotate,
    right=Right.ACCESS, example={"grace": 3600},
)  # fmt: skip
async def rotate_key(call: Alone, id: KeyId, how: Annotated[Rotate, sent(Rotate)]) -> KeyTold:
    made = credentials(call)
    old = await made.key(id, own(call))
    known = await made.roles(old.tenant)
    given = [*old.grants, *(g for role in old.roles for g in known.get(role, ()))]
    refuse_more(call, given, old.scopes)
    key, token = await made.rotate_key(id, grace=how.grace, tenant=own(call))
    return key_of(key, await call.service.store.now(), token)


@access.add("DELETE", "/v1/keys/{id}", "Revoke a key", KeyTold, right=Right.ACCESS)
async def revoke_key(call: Alone, id: KeyId) -> KeyTold:
    key = await credentials(call).revoke_key(id, tenant=own(call))
    return key_of(key, await call.service.store.now())


@access.add("GET", "/v1/roles", "List roles", Roles, right=Right.ACCESS)
async def list_roles(call: Alone) -> Roles:
    found = await credentials(call).roles(call.caller.tenant)
    return Roles([RoleTold(name, grants, name in ROLES) for name, grants in found.items()])


@access.add(
    "PUT", "/v1/roles/{name}", "Create or change a role", RoleTold, takes=NewRole,
    right=Right.ACCESS, example={"grants": ["publish:mail-*", "read", "-read:payroll"]},
)  # fmt: skip
async def save_role(
    call: Alone, name: QueueName, new: Annotated[NewRole, sent(NewRole)]
) -> RoleTold:
    refuse_more(call, new.grants)
    role = await credentials(call).save_role(call.caller.tenant, name, new.grants)
    return RoleTold(name, role.grants, False)


@access.add("DELETE", "/v1/roles/{name}", "Delete a role", None, status=204, right=Right.ACCESS)
async def delete_role(call: Alone, name: QueueName) -> None:
    await credentials(call).delete_role(call.caller.tenant, name)


@access.add("GET", "/v1/trusts", "List which scopes trust which", Trusts, right=Right.ACCESS)
async def list_trusts(call: Alone) -> Trusts:
    found = await credentials(call).trusts(call.caller.tenant)
    return Trusts([trust_of(each) for each in found])


@access.add(
    "PUT", "/v1/trusts/{name}/{trusted}", "Let callers of a scope into another", TrustTold,
    takes=NewRole, right=Right.ACCESS, example={"grants": ["publish:inbox"]},
)  # fmt: skip
async def save_trust(
    call: Alone, name: QueueName, trusted: QueueName, new: Annotated[NewRole, sent(NewRole)]
) -> TrustTold:
    refuse_more(call, new.grants, [name])
    saved = await credentials(call).save_trust(call.caller.tenant, name, trusted, new.grants)
    return trust_of(saved)


@access.add(
    "DELETE", "/v1/trusts/{name}/{trusted}", "Let them in no more", None, status=204,
    right=Right.ACCESS,
)  # fmt: skip
async def delete_trust(call: Alone, name: QueueName, trusted: QueueName) -> None:
    await credentials(call).delete_trust(call.caller.tenant, name, trusted)


@access.add("GET", "/v1/audit", "Who did what, and who was refused", Acts, right=Right.ACCESS)
async def list_acts(
    call: Alone,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(max_length=200, description="Of the page before.")] = None,
) -> Acts:
    """The newest first. What changed the store was written by the transaction that did."""
    tokens, filter = call.service.tokens, ("audit", call.caller.tenant)
    before = NEVER if cursor is None else tokens.unseal(cursor, filter)
    found = await call.service.store.acts(own(call), before, limit)
    more = len(found) == limit
    return Acts(
        [act_of(each) for each in found], tokens.seal(found[-1].id, filter) if more else None
    )
