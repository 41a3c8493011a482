"""The right `access` reaches as far as its scopes, and nobody gives a key more than they have."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.http.keys import keyed, serve_with_auth
from tests.http.served import Served

SECRET = "/v1/callbacks/secret"


@pytest.fixture(scope="module")
def server(store: str, folder: Path) -> Iterator[Served]:
    with serve_with_auth(store, folder) as running:
        for name in ("web", "shop"):
            running.post("/v1/scopes", {"name": name})
            running.post("/v1/queues", {"name": "work"}, scope=name)
        yield running


def key_id(caller: Served) -> str:
    assert caller.key is not None
    return caller.key.split("_")[1]


@pytest.fixture(scope="module")
def web_admin(server: Served) -> Served:
    return keyed(server, "admin", scopes=["web"])


def test_what_is_the_tenants_is_not_for_the_admin_of_one_scope(
    server: Served, web_admin: Served
) -> None:
    for admin, status in ((web_admin, 403), (server, 200)):
        assert admin.get(SECRET).status == status
        assert admin.post(f"{SECRET}/rotate").status == status
        assert admin.ask("PUT", "/v1/roles/reader", {"grants": ["read"]}).status == status
    assert web_admin.ask("DELETE", "/v1/roles/reader").status == 403
    assert server.ask("DELETE", "/v1/roles/reader").status == 204


def test_keys_are_managed_within_the_scopes_of_the_caller(
    server: Served, web_admin: Served
) -> None:
    mine = keyed(web_admin, "worker", scopes=["web"])
    theirs = keyed(server, "worker", scopes=["shop"])
    both = keyed(server, "worker", scopes=["web", "shop"])
    for other in (server, theirs, both):
        path = f"/v1/keys/{key_id(other)}"
        assert web_admin.ask("DELETE", path).status == 403
        assert web_admin.post(f"{path}/rotate").status == 403
        assert other.get("/v1/workers").status == 200
    # Also one that gives nothing, and so no more than the caller has.
    denied = keyed(server, grants=["-read"], scopes=["shop"])
    assert web_admin.ask("DELETE", f"/v1/keys/{key_id(denied)}").status == 403
    listed = {each["id"] for each in web_admin.get("/v1/keys").json["keys"]}
    assert {key_id(mine), key_id(web_admin)} <= listed
    assert listed.isdisjoint(map(key_id, (server, theirs, both)))
    for scopes in (["shop"], ["web", "shop"], ["*"]):
        made = web_admin.post("/v1/keys", {"name": "x", "roles": ["worker"], "scopes": scopes})
        assert made.status == 403, scopes
    assert web_admin.post("/v1/keys", {"name": "x", "roles": ["worker"]}).status == 403
    assert web_admin.post(f"/v1/keys/{key_id(mine)}/rotate").status == 200
    assert web_admin.ask("DELETE", f"/v1/keys/{key_id(mine)}").status == 200


def test_an_admin_of_one_scope_sees_no_other_tenant(server: Served, web_admin: Served) -> None:
    other = keyed(server, "admin", tenant="acme", scopes=["web"])
    assert key_id(other) not in web_admin.get("/v1/keys").body.decode()
    assert web_admin.ask("DELETE", f"/v1/keys/{key_id(other)}").status == 404
    new = {"name": "x", "roles": ["worker"], "scopes": ["web"], "tenant": "acme"}
    assert web_admin.post("/v1/keys", new).status == 403
    assert server.ask("DELETE", f"/v1/keys/{key_id(other)}").status == 200


def test_trusts_are_given_by_the_scope_that_trusts(server: Served, web_admin: Served) -> None:
    grants = {"grants": ["publish:work"]}
    assert web_admin.ask("PUT", "/v1/trusts/shop/web", grants).status == 403
    assert server.ask("PUT", "/v1/trusts/shop/web", grants).status == 200
    assert web_admin.ask("DELETE", "/v1/trusts/shop/web").status == 403
    assert web_admin.ask("PUT", "/v1/trusts/web/shop", grants).status == 200
    listed = [each["scope"] for each in web_admin.get("/v1/trusts").json["trusts"]]
    assert listed == ["web"]
    assert web_admin.ask("DELETE", "/v1/trusts/web/shop").status == 204
    assert server.ask("DELETE", "/v1/trusts/shop/web").status == 204


def test_the_record_shows_what_was_done_in_the_scopes_of_the_caller(
    server: Served, web_admin: Served
) -> None:
    marks = [
        ("mark-queue", "/v1/queues/work/pause", "web"),
        ("mark-scope", "/v1/scopes/web/resume", None),
        ("mark-shop", "/v1/queues/work/pause", "shop"),
        ("mark-other", "/v1/scopes/shop/resume", None),
    ]
    for mark, path, scope in marks:
        where = path if scope is None else f"{path}?scope={scope}"
        assert server.ask("POST", where, headers={"X-Request-Id": mark}).status == 200
    server.post(f"{SECRET}/rotate")
    seen = web_admin.get("/v1/audit", limit=1000).json["acts"]
    assert {each["scope"] for each in seen} == {"web"}
    ids = {each.get("request_id") for each in seen}
    assert {"mark-queue", "mark-scope"} <= ids
    assert ids.isdisjoint({"mark-shop", "mark-other"})
    everything = server.get("/v1/audit", limit=1000).json["acts"]
    assert {each[0] for each in marks} <= {each.get("request_id") for each in everything}
    first = web_admin.get("/v1/audit", limit=1).json
    second = web_admin.get("/v1/audit", limit=1, cursor=first["cursor"]).json
    assert [*first["acts"], *second["acts"]] == seen[:2]


def test_access_to_one_queue_is_no_grant(server: Served) -> None:
    for grants in (["access:mail-*"], ["-access:mail"]):
        assert server.post("/v1/keys", {"name": "x", "grants": grants}).status == 422
        assert server.ask("PUT", "/v1/roles/x", {"grants": grants}).status == 422
    every_right_on_one_queue = keyed(server, grants=["*:default"])
    for path in ("/v1/keys", "/v1/audit", "/v1/roles", "/v1/trusts", SECRET):
        assert every_right_on_one_queue.get(path).status == 403, path
    assert keyed(server, grants=["access"]).get("/v1/keys").status == 200


def test_to_revoke_a_key_takes_what_it_takes_to_rotate_it(server: Served) -> None:
    clerk = keyed(server, grants=["access"])
    admin, equal = (
        f"/v1/keys/{key_id(server)}",
        f"/v1/keys/{key_id(keyed(clerk, grants=['access']))}",
    )
    assert clerk.post(f"{admin}/rotate").status == clerk.ask("DELETE", admin).status == 403
    assert server.get("/v1/keys").status == 200
    assert clerk.post(f"{equal}/rotate").status == clerk.ask("DELETE", equal).status == 200


@pytest.mark.parametrize("empty", ["types", "scopes"])
def test_a_key_with_an_empty_list_is_refused(server: Served, empty: str) -> None:
    new = {"name": "x", "roles": ["worker"]}
    assert server.post("/v1/keys", {**new, empty: []}).status == 422
    assert server.post("/v1/keys", {**new, empty: ["default"]}).status == 201


LIMITS: list[tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]] = [
    ({"types": ["a", "b"]}, {"types": ["a"]}, [{}, {"types": ["*"]}, {"types": ["a", "c"]}]),
    ({"rate": 500}, {"rate": 500}, [{}, {"rate": 501}]),
    ({"ttl": 3600}, {"ttl": 60}, [{}, {"ttl": 7200}]),
]


@pytest.mark.parametrize(("own", "fits", "more"), LIMITS, ids=["types", "rate", "end"])
def test_nobody_gives_a_key_further_limits_than_their_own(
    server: Served, own: dict[str, Any], fits: dict[str, Any], more: list[dict[str, Any]]
) -> None:
    clerk = keyed(server, "admin", **own)
    new = {"name": "x", "roles": ["worker"]}
    for limits in more:
        assert clerk.post("/v1/keys", {**new, **limits}).code == "FORBIDDEN", limits
        mightier = keyed(server, "worker", **limits)
        assert clerk.post(f"/v1/keys/{key_id(mightier)}/rotate").code == "FORBIDDEN", limits
    made = clerk.post("/v1/keys", {**new, **fits})
    assert made.status == 201
    assert clerk.post(f"/v1/keys/{made.json['id']}/rotate").status == 200


def test_workers_of_one_name_in_two_tenants_are_two(server: Served) -> None:
    ours, theirs = keyed(server, "operator"), keyed(server, "operator", tenant="acme")
    path, present = "/v1/workers/twin", {"host": "far", "pid": 1, "queues": []}
    assert ours.ask("PUT", path, {**present, "host": "ours"}).status == 204
    assert theirs.ask("PUT", path, {**present, "host": "theirs"}).status == 204

    def listed(caller: Served) -> dict[str, Any]:
        return {each["id"]: each for each in caller.get("/v1/workers").json["workers"]}

    seen = listed(ours)["twin"]
    assert (seen["host"], listed(theirs)["twin"]["host"]) == ("ours", "theirs")
    assert theirs.ask("PUT", path, present).status == 204
    assert listed(ours)["twin"] == seen
    assert theirs.post(f"{path}/stop").json["state"] == "stopping"
    assert listed(ours)["twin"] == seen
    assert theirs.ask("DELETE", path).status == 204
    assert "twin" not in listed(theirs)
    assert listed(ours)["twin"] == seen
    assert ours.ask("DELETE", path).status == 204
    assert "twin" not in listed(ours)
