"""The server side of the dashboard: files, sessions, overview, failures and changes."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from penstock import stores
from penstock.errors import Forbidden, NotFound, Unauthenticated
from penstock.http.auth.authenticate import Authenticator
from penstock.http.auth.identity import TrustedIssuers
from penstock.http.auth.tickets import SESSION_LIFETIME_S
from penstock.http.dashboard.change_stream import choose_interval
from penstock.http.dashboard.files import read_web_file
from penstock.http.dashboard.overview import OverviewInputs, make_overview, sum_samples
from penstock.http.dashboard.series import BUCKET_MICROS, BUCKET_S, QueueSeries, Sample
from penstock.http.metrics.queue_stats import QueueSnapshot
from penstock.model.queue import Queue, QueueState, Scope
from penstock.rules.access import Key
from tests.cli.terminal import until
from tests.http.keys import keyed, serve_with_auth, showing
from tests.http.served import Reply, Served, served


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("dashboard")
    with serve_with_auth(f"sqlite:///{home}/queue.db", home) as running:
        yield running


class Browser:
    """Signs in with a key, and sends the cookie as a browser does."""

    def __init__(self, server: Served, key: str | None) -> None:
        self.server = showing(server, None)
        reply = self.server.post("/v1/session", {"key": key})
        assert reply.status == 200, reply
        self.cookie = reply.headers["set-cookie"]
        self.csrf: str = reply.json["csrf"]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        return self.server.ask(method, path, body, {"Cookie": self.cookie.split(";")[0], **headers})


def test_the_page_and_its_files_need_no_credentials(server: Served) -> None:
    nobody = showing(server, None)
    page = nobody.get("/")
    assert page.status == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    names = re.findall(r'(?:src|href)="\./(assets/[^"]+)"', page.body.decode())
    assert len(names) >= 3
    for name in names:
        reply = nobody.get(f"/{name}")
        assert reply.status == 200, (name, reply)
        assert "immutable" in reply.headers["cache-control"]
    assert nobody.get("/docs").status == 200
    assert nobody.get("/v1/overview").status == 401


def test_a_file_is_sent_once_and_compressed(server: Served) -> None:
    whole = server.get("/")
    again = server.ask("GET", "/", None, {"If-None-Match": whole.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    script = re.search(r"assets/index-[^\"]+\.js", whole.body.decode())
    assert script is not None
    packed = server.ask("GET", f"/{script[0]}", None, {"Accept-Encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert len(packed.body) < len(server.get(f"/{script[0]}").body) / 2


@pytest.mark.parametrize("name", ["../index.html", "nothing.js", "..%2Findex.html", "a\\b", "%00"])
def test_names_outside_the_files_are_not_found(server: Served, name: str) -> None:
    assert server.get(f"/assets/{name}").status == 404


def test_a_missing_build_is_named_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.http.dashboard.files.FOLDER", "no-such-folder")
    read_web_file.cache_clear()
    with pytest.raises(NotFound, match="reinstall the package"):
        read_web_file("index.html")
    read_web_file.cache_clear()


def test_a_session_has_the_rights_of_its_key(server: Served) -> None:
    viewer = Browser(server, keyed(server, "viewer").key)
    session = viewer.ask("GET", "/v1/session").json
    assert (session["signed_in"], session["grants"]) == (True, ["read"])
    assert session["subject"].startswith("key:")
    assert viewer.ask("GET", "/v1/queues").status == 200
    refused = viewer.ask("POST", "/v1/queues", {"name": "no"}, **{"X-CSRF-Token": viewer.csrf})
    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    for word in ("HttpOnly", "SameSite=strict", "Max-Age=43200"):
        assert word in viewer.cookie
    assert "Secure" not in viewer.cookie


def test_a_write_with_a_cookie_needs_the_token_of_its_session(server: Served) -> None:
    browser, other = Browser(server, server.key), Browser(server, keyed(server, "admin").key)
    for headers in ({}, {"X-CSRF-Token": "0" * 32}, {"X-CSRF-Token": other.csrf}):
        reply = browser.ask("POST", "/v1/queues", {"name": "csrf"}, **headers)
        assert reply.status == 403, reply
        assert "X-CSRF-Token" in reply.json["error"]["message"]
    reply = browser.ask("POST", "/v1/queues", {"name": "csrf"}, **{"X-CSRF-Token": browser.csrf})
    assert reply.status == 201


def test_a_session_ends_with_its_key(server: Served) -> None:
    made = server.post("/v1/keys", {"name": "short", "roles": ["viewer"]}).json
    browser = Browser(server, made["key"])
    assert browser.ask("GET", "/v1/queues").status == 200
    assert server.ask("DELETE", f"/v1/keys/{made['id']}").status == 200
    until(lambda: browser.ask("GET", "/v1/queues").status == 401)
    assert browser.ask("GET", "/v1/session").json["signed_in"] is False


def test_signing_out_deletes_the_cookie(server: Served) -> None:
    reply = Browser(server, server.key).ask("DELETE", "/v1/session")
    assert reply.status == 204
    assert "Max-Age=0" in reply.headers["set-cookie"]


def test_no_session_without_a_valid_key(server: Served) -> None:
    nobody = showing(server, None)
    assert nobody.get("/v1/session").json == {"asks": True, "signed_in": False}
    for key in ("psk_0_wrong", "nonsense", Browser(server, server.key).cookie.split("=")[1]):
        assert nobody.post("/v1/session", {"key": key}).status == 401
    forged = {"Cookie": "penstock_session=pss_AAAA"}
    assert nobody.ask("GET", "/v1/queues", None, forged).status == 401
    session = Browser(server, server.key).cookie.split(";")[0].split("=")[1]
    assert showing(server, session).get("/v1/queues").status == 401


@pytest.mark.anyio
async def test_a_session_lasts_twelve_hours() -> None:
    async with await stores.open("sqlite://") as store:
        now = [1_000.0]
        gate = Authenticator(store, TrustedIssuers(), clock=lambda: now[0])
        key, token = await gate.credentials.create_key(make_admin_key())
        proof = await gate.sign_in(token, {"client": None})
        scope = {
            "method": "GET", "path": "/v1/queues", "query_string": b"",
            "headers": [(b"cookie", f"penstock_session={proof.token}".encode())],
        }  # fmt: skip
        assert (await gate.admit(scope)).subject == f"key:{key.id}"
        sessions = await gate.sessions()
        identity = sessions.read(proof.token)
        born = await store.now() - SESSION_LIFETIME_S * 1_000_000
        old, _ = sessions.issue(identity, born)
        with pytest.raises(Unauthenticated, match="expired"):
            await gate.admit(
                {**scope, "headers": [(b"cookie", b"penstock_session=" + old.encode())]}
            )
        with pytest.raises(Forbidden, match="X-CSRF-Token"):
            await gate.admit({**scope, "method": "POST"})


def make_admin_key() -> Any:
    return Key(id="", name="root", roles=("admin",))


def test_the_overview_counts_what_happens(server: Served) -> None:
    queue = server.queue()
    server.get("/v1/overview")
    for number in range(5):
        server.publish(queue, {"n": number})
    for message in server.claim(queue, limit=2):
        assert server.post("/v1/complete", {"token": message["token"]}).status == 200
    (message,) = server.claim(queue, limit=1)
    server.post("/v1/reject", {"token": message["token"], "error": "ValueError: no total 17"})

    def look() -> Any:
        found = server.get("/v1/overview").json
        return next((each for each in found["queues"] if each["queue"] == queue), None)

    def counted() -> bool:
        each = look()
        return each is not None and sum(filter(None, each["published"])) == 5

    until(counted)
    each = look()
    assert (each["ready"], each["dead"], each["died"]) == (2, 1, 1)
    assert (sum(each["completed"]), sum(each["failed"])) == (2, 1)
    attention = server.get("/v1/overview").json["attention"]
    mine = next(item for item in attention if item["subject"] == queue)
    assert mine["kind"] == "dead_letters"
    assert mine["detail"] == "ValueError: no total <n>"


def test_the_first_overview_knows_the_minutes_before_it(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path}/queue.db", tmp_path) as server:
        assert server.post("/v1/queues", {"name": "orders"}).status == 201
        for number in range(6):
            server.publish("orders", {"n": number})
        # A run that lasts over the end of a bucket, and what waits behind it.
        (first,) = server.claim("orders", limit=1)
        begun = time.time() // BUCKET_S
        until(lambda: time.time() // BUCKET_S > begun)
        assert server.post("/v1/complete", {"token": first["token"]}).status == 200
        until(lambda: time.time() // BUCKET_S > begun + 1)
        totals = server.get("/v1/overview").json["totals"]
    assert sum(totals["published"]) == 6
    assert sum(totals["completed"]) == 1
    assert totals["running"][-3:-1].count(1) == 1
    assert max(totals["waiting"][:-1]) == 5
    assert max(totals["oldest"][:-1]) > 0
    assert totals["completed_rate"] > 0


def test_the_last_hour_adds_up_the_queues_that_the_caller_may_read(server: Served) -> None:
    mine, other = server.queue(), server.queue()
    for queue in (mine, other, other):
        server.publish(queue)
        (message,) = server.claim(queue, limit=1)
        assert server.post("/v1/complete", {"token": message["token"]}).status == 200
    reader = keyed(server, grants=[f"read:{mine}"])

    def count() -> int:
        minutes = reader.get("/v1/overview/hour").json["minutes"]
        assert len(minutes) == 61
        return sum(each["completed"] for each in minutes if each["wait_p95"] is not None)

    until(lambda: count() == 1)


def test_a_view_is_saved_replaced_and_deleted(server: Served) -> None:
    saved = server.ask("PUT", "/v1/views/dead-mail", {"filter": "state:dead"})
    assert saved.status == 200, saved
    assert server.ask("PUT", "/v1/views/dead-mail", {"filter": "state:dead age>1h"}).status == 200
    (view,) = server.get("/v1/views").json["views"]
    assert (view["name"], view["filter"]) == ("dead-mail", "state:dead age>1h")
    assert view["saved_by"]
    wrong = server.ask("PUT", "/v1/views/wrong", {"filter": "state:"})
    assert (wrong.status, wrong.json["error"]["code"]) == (422, "INVALID_INPUT")
    assert server.ask("PUT", "/v1/views/a%20b", {"filter": "state:dead"}).status in (400, 422)
    assert server.ask("DELETE", "/v1/views/dead-mail").status == 204
    assert server.ask("DELETE", "/v1/views/dead-mail").status == 404


def test_an_unchanged_overview_is_not_sent_again(server: Served) -> None:
    def is_unchanged() -> bool:
        etag = server.get("/v1/overview").headers["etag"]
        return server.ask("GET", "/v1/overview", None, {"If-None-Match": etag}).status == 304

    until(is_unchanged)


def test_failures_are_grouped_by_the_shape_of_their_error(server: Served) -> None:
    queue = server.queue()
    errors = [
        "TimeoutError: host-14 after 300 ms",
        "TimeoutError: host-9 after 20 ms",
        "KeyError: x",
    ]
    for error in errors:
        server.publish(queue, None, labels={"tier": "gold" if "host" in error else "free"})
        (message,) = server.claim(queue)
        server.post("/v1/reject", {"token": message["token"], "error": error})
    found = server.get("/v1/failures", queue=queue).json
    assert [(group["count"], group["template"]) for group in found["groups"]] == [
        (2, "TimeoutError: host-<n> after <n> ms"),
        (1, "KeyError: x"),
    ]
    first = found["groups"][0]
    assert {"name": "label.tier", "value": "gold", "share": 1.0, "others": 0.0} in first["traits"]
    assert sum(first["trend"]) == 2
    matched = server.get("/v1/messages", filter=first["filter"]).json["messages"]
    assert len(matched) == 2
    assert found["complete"] is True


def test_the_failures_like_a_message_are_one_group(server: Served) -> None:
    queue = server.queue()
    ids = [reject(server, queue, f"TimeoutError: host-{number}") for number in range(3)]
    other = reject(server, queue, "KeyError: x")
    for id, count in ((ids[0], 3), (other, 1)):
        (group,) = server.get("/v1/failures", queue=queue, like=id).json["groups"]
        assert group["count"] == count
    assert server.get("/v1/failures", like="999999999").status == 404


def test_causes_are_listed_once_each(tmp_path: Path) -> None:
    with served(f"sqlite:///{tmp_path}/causes.db", tmp_path) as own:
        for error in ("TimeoutError: host-14", "TimeoutError: host-9", "KeyError: x"):
            reject(own, own.queue(), error)
        found = own.get("/v1/failures/causes").json
        groups = own.get("/v1/failures").json["groups"]
        assert sorted(found["fingerprints"]) == sorted(group["fingerprint"] for group in groups)
        assert (len(groups), found["complete"]) == (2, True)


def test_messages_are_counted_to_the_last_one(server: Served) -> None:
    queue = server.queue()
    for number in range(7):
        server.publish(queue, {"n": number})
    reject(server, queue, "no")

    def count(filter: str) -> tuple[int, bool]:
        found = server.get("/v1/messages/count", filter=filter).json
        return found["count"], found["exact"]

    until(lambda: count(f"queue:{queue} state:ready,dead") == (8, True))
    until(lambda: count(f"queue:{queue} body.n>3") == (3, True))
    assert server.get("/v1/messages/count", filter="quue:x").status == 422
    viewer = keyed(server, grants=["read:elsewhere*"])
    for filter in (f"queue:{queue}", f"queue:{queue} state:ready"):
        assert viewer.get("/v1/messages/count", filter=filter).json["count"] == 0


def test_callers_with_other_rights_get_their_own_overview(server: Served) -> None:
    queue = server.queue()
    until(lambda: queue in str(server.get("/v1/overview").body))
    other = keyed(server, grants=["read:elsewhere*"])
    for _ in range(2):
        assert queue in str(server.get("/v1/overview").body)
        assert other.get("/v1/overview").json["queues"] == []


def reject(server: Served, queue: str, error: str) -> str:
    id = server.publish(queue)
    (message,) = server.claim(queue)
    assert server.post("/v1/reject", {"token": message["token"], "error": error}).status == 200
    return id


def test_a_queue_with_ordering_keys_says_so(server: Served) -> None:
    keyed, plain = server.queue(), server.queue()
    server.publish(keyed, ordering_key="ada")
    server.publish(plain)

    def look(queue: str) -> Any:
        (found,) = server.get("/v1/overview", contains=queue, limit=1).json["queues"]
        return found["keyed"]

    until(lambda: look(keyed))
    assert not look(plain)


class CountedSeries(QueueSeries):
    """Counts how often its buckets are listed."""

    listed = 0

    def list_published(self, last: int) -> list[int | None]:
        CountedSeries.listed += 1
        return super().list_published(last)


def test_an_overview_computes_the_figures_that_it_shows() -> None:
    scope = Scope(1, "", "default", paused=False)
    queues = [Queue(id, scope, f"q-{id:04}", QueueState.ACTIVE) for id in range(1, 1_001)]
    series: dict[int, QueueSeries] = {queue.id: CountedSeries(0) for queue in queues}
    snapshot = QueueSnapshot(0, {(queue.id, "ready"): queue.id for queue in queues})
    overview = make_overview(OverviewInputs(0, queues, [], snapshot, series, []), limit=2)
    assert [each.queue for each in overview.queues] == ["q-0999", "q-1000"]
    assert (overview.queue_count, overview.totals.ready) == (1_000, 500_500)
    assert CountedSeries.listed == 2


@contextmanager
def open_changes(server: Served) -> Iterator[HTTPResponse]:
    with closing(server.connect()) as connection:
        connection.request("GET", "/v1/changes", headers={"Authorization": f"Bearer {server.key}"})
        with connection.getresponse() as stream:
            yield stream


def read_event(stream: HTTPResponse, name: str) -> Any:
    """Reads on to the next event of that name."""
    while True:
        line = stream.readline().decode()
        assert line, "the stream ended"
        if line.strip() == f"event: {name}":
            return json.loads(stream.readline().decode().removeprefix("data: "))


def test_changes_name_the_queues_that_the_caller_may_read(server: Served) -> None:
    seen, hidden = server.queue(), server.queue()
    reader = keyed(server, grants=[f"read:{seen}"])
    named: set[str] = set()
    with open_changes(reader) as stream:
        read_event(stream, "opened")
        server.publish(hidden)
        server.publish(seen)
        while seen not in named:
            named |= set(read_event(stream, "changes").get("queues", []))
    assert hidden not in named


def test_a_list_without_bodies_has_none(server: Served) -> None:
    queue = server.queue()
    server.publish(queue, {"card": "4111"})
    for query in ({"queue": queue}, {"filter": f"queue:{queue}"}):
        (message,) = server.get("/v1/messages", bodies="false", **query).json["messages"]
        assert "body" not in message
        (message,) = server.get("/v1/messages", **query).json["messages"]
        assert message["body"] == {"card": "4111"}


def test_a_message_says_how_many_attempts_it_may_have(server: Served) -> None:
    queue = server.queue(max_attempts=4)
    by_queue, own = server.publish(queue), server.publish(queue, max_attempts=2)
    found = server.get("/v1/messages", queue=queue).json["messages"]
    assert {each["id"]: each["attempt_limit"] for each in found} == {by_queue: 4, own: 2}


def test_counts_that_are_far_apart_leave_no_gap() -> None:
    series = QueueSeries(100)
    series.samples[101] = sample = Sample(ready=7, claimed=2, since=None)
    series.fill_gaps(101, 104)
    series.samples[104] = Sample(ready=3, claimed=0, since=None)
    totals = sum_samples([series], last=106, counted=104)[-6:]
    assert [total.ready for total in totals] == [7, 7, 7, 3, 3, 3]
    assert series.samples[103] is sample


def test_messages_published_between_two_counts_are_spread_over_the_time() -> None:
    series = QueueSeries(100)
    series.count(0, 100 * BUCKET_MICROS)
    series.count(24, 103 * BUCKET_MICROS - 1)
    assert series.list_published(103)[-4:] == [8, 8, 8, 0]


def test_a_queue_is_found_by_its_name_among_busier_ones(server: Served) -> None:
    quiet = server.queue()
    reply = server.post("/v1/queues", {"name": f"{quiet}-busy"})
    assert reply.status == 201, reply
    server.publish(f"{quiet}-busy")
    until(
        lambda: server.get("/v1/overview", contains=f"{quiet}-busy").json["queues"][0]["ready"] == 1
    )
    (found,) = server.get("/v1/overview", contains=quiet, limit=1).json["queues"]
    assert found["queue"] == quiet


def test_many_open_pages_hear_of_changes_less_often() -> None:
    assert [choose_interval(streams) for streams in (1, 5, 10, 20, 500)] == [0.5, 0.5, 1, 2, 2]
