"""Web pages of other origins: CORS, and tickets for event streams."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock import stores
from penstock.errors import InvalidInput, Unauthenticated
from penstock.http import create_app
from penstock.http.auth.authenticate import Authenticator
from penstock.http.auth.identity import Identity, TrustedIssuers
from penstock.http.auth.tickets import LIFETIME_S, make_ticket_signer
from tests.cli.terminal import until
from tests.http.asgi_client import AsgiClient, lifespan
from tests.http.keys import keyed, serve_with_auth, showing
from tests.http.served import Reply, Served, Stream

PAGE, OTHER = "http://localhost:5173", "https://evil.example"
PREFLIGHT = {
    "Origin": PAGE,
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("browsers")
    with serve_with_auth(f"sqlite:///{home}/queue.db", home, "--cors-origin", PAGE) as running:
        yield running


def list_cors_headers(reply: Reply) -> dict[str, str]:
    return {
        name.lower(): value
        for name, value in reply.headers.items()
        if name.lower().startswith("access-control-")
    }


def test_a_preflight_of_an_allowed_origin_needs_no_key(server: Served) -> None:
    reply = showing(server, None).ask("OPTIONS", "/v1/publish", None, PREFLIGHT)
    assert reply.status == 204
    told = list_cors_headers(reply)
    assert told["access-control-allow-origin"] == PAGE
    assert "POST" in told["access-control-allow-methods"]
    assert told["access-control-allow-headers"] == "authorization,content-type"


def test_every_answer_to_an_allowed_origin_names_it(server: Served) -> None:
    queue = server.queue()
    asks = [("POST", "/v1/publish", {"queue": queue}), ("GET", "/v1/queues", None),
            ("GET", "/nowhere", None), ("GET", f"/v1/queues/{queue}/export", None)]  # fmt: skip
    for method, path, body in asks:
        reply = server.ask(method, path, body, {"Origin": PAGE})
        assert list_cors_headers(reply)["access-control-allow-origin"] == PAGE, (path, reply)
        assert reply.headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", [OTHER, PAGE + "/", "null", "http://localhost:51730"])
def test_other_origins_get_no_permission(server: Served, origin: str) -> None:
    preflight = server.ask("OPTIONS", "/v1/publish", None, {**PREFLIGHT, "Origin": origin})
    assert (preflight.status, list_cors_headers(preflight)) == (405, {})
    reply = server.ask("GET", "/v1/queues", None, {"Origin": origin})
    assert (reply.status, list_cors_headers(reply)) == (200, {})


@pytest.mark.parametrize("origin", ["*", "example.org", "https://a.example/app", "https://*.a.b"])
def test_an_origin_that_is_not_exact_is_refused(origin: str) -> None:
    with pytest.raises(InvalidInput, match="exact origin"):
        create_app("sqlite://", cors_origins=[origin])


@pytest.mark.anyio
async def test_without_credentials_an_allowed_page_may_write_and_others_may_not(
    tmp_path: Path,
) -> None:
    app = create_app(f"sqlite:///{tmp_path}/queue.db", cors_origins=[PAGE])
    async with lifespan(app):
        client = AsgiClient(app)
        for origin, status in ((PAGE, 201), (OTHER, 403)):
            headers = [(b"origin", origin.encode()), (b"sec-fetch-site", b"same-site")]
            body = {"name": f"q{status}"}
            reply = await client.call("POST", "/v1/queues", body, *headers).reply()
            assert reply.status == status, reply


def test_a_ticket_opens_an_event_stream_without_headers(server: Served) -> None:
    queue = server.queue()
    made = keyed(server, "viewer").post("/v1/events/ticket")
    assert made.status == 201, made
    opening = {"ticket": made.json["ticket"], "queue": queue}
    with closing(Stream(showing(server, None), **opening)) as stream:
        id = server.publish(queue)
        assert stream.event()["id"] == id
    opening["last_event_id"] = stream.hello["id"]
    with closing(Stream(showing(server, None), **opening)) as later:
        assert later.event()["id"] == id


def test_a_ticket_is_good_for_event_streams_alone(server: Served) -> None:
    ticket = server.post("/v1/events/ticket").json["ticket"]
    nobody = showing(server, None)
    assert nobody.get("/v1/queues", ticket=ticket).status == 401
    assert nobody.post("/v1/events/ticket", ticket=ticket).status == 401
    assert showing(server, ticket).get("/v1/queues").status == 401
    changed = ticket[:-4] + ("AAAA" if ticket[-4:] != "AAAA" else "BBBB")
    assert nobody.get("/v1/events", ticket=changed).status == 401


def test_only_who_may_read_gets_a_ticket(server: Served) -> None:
    assert keyed(server, "producer").post("/v1/events/ticket").status == 403
    assert showing(server, None).post("/v1/events/ticket").status == 401


def test_a_stream_by_a_ticket_ends_with_its_key(server: Served) -> None:
    made = server.post("/v1/keys", {"name": "page", "roles": ["viewer"]}).json
    ticket = showing(server, made["key"]).post("/v1/events/ticket").json["ticket"]
    with closing(Stream(showing(server, None), ticket=ticket)) as stream:
        assert server.ask("DELETE", f"/v1/keys/{made['id']}").status == 200
        until(lambda: not stream.frame())
    assert showing(server, None).get("/v1/events", ticket=ticket).status == 401


@pytest.mark.anyio
async def test_a_ticket_opens_nothing_after_a_minute_and_a_stream_outlives_it() -> None:
    async with await stores.open("sqlite://") as store:
        gate = Authenticator(store, TrustedIssuers())
        tickets = make_ticket_signer(await store.secret())
        now = await store.now()
        identity = Identity(subject="jwt:ada", grants=("read",))
        old, _ = tickets.issue(identity, now - LIFETIME_S * 1_000_000)
        fresh, _ = tickets.issue(identity, now)

        def opening(ticket: str) -> dict[str, object]:
            query = f"ticket={ticket}".encode()
            return {"method": "GET", "path": "/v1/events", "query_string": query, "headers": []}

        assert (await gate.admit(opening(fresh))).subject == "jwt:ada"
        with pytest.raises(Unauthenticated, match="expired"):
            await gate.admit(opening(old))
        assert (await gate.recognise(opening(old))).subject == "jwt:ada"
