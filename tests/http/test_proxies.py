"""Servers behind a reverse proxy, and servers that must not be."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import until
from tests.http.keys import keyed, serve_with_auth, showing
from tests.http.served import Served

HOT, COLD = "/v1/publish", "/v1/queues"


@pytest.fixture(scope="module")
def proxied(folder: Path) -> Iterator[Served]:
    """The tests are its proxy."""
    words = ("--trusted-proxies", "127.0.0.1", "--trusted-proxies", "10.0.0.0/8")
    with serve_with_auth(f"sqlite:///{folder}/proxied.db", folder, *words) as running:
        yield running


def ask_from(server: Served, client: str, key: str | None) -> int:
    headers = {"X-Forwarded-For": client}
    return showing(server, key).ask("GET", "/v1/queues", headers=headers).status


def exhaust(server: Served, client: str) -> None:
    """Shows wrong keys until the address has to wait."""
    until(lambda: ask_from(server, client, "psk_1_wrong") == 429)


def test_a_valid_key_is_let_in_whatever_others_try(proxied: Served) -> None:
    fresh = keyed(proxied, "viewer").key
    exhaust(proxied, "6.6.6.6")
    assert ask_from(proxied, "6.6.6.6", "psk_2_wrong") == 429
    assert ask_from(proxied, "6.6.6.6", fresh) == 200


def test_clients_behind_a_proxy_are_counted_one_by_one(proxied: Served) -> None:
    exhaust(proxied, "6.6.6.7")
    assert ask_from(proxied, "6.6.6.7", "psk_3_wrong") == 429
    assert ask_from(proxied, "7.7.7.7", "psk_3_wrong") == 401
    # What stands before the last address, the client wrote itself.
    assert ask_from(proxied, "1.2.3.4, 6.6.6.7", "psk_3_wrong") == 429
    assert ask_from(proxied, "6.6.6.7, 10.1.2.3", "psk_3_wrong") == 429


def test_the_record_has_the_address_of_the_client(proxied: Served) -> None:
    ask_from(proxied, "8.8.8.8", "psk_4_wrong")

    def is_recorded() -> bool:
        rows = proxied.get("/v1/audit").json["acts"]
        return any(row["subject"] == "address 8.8.8.8" for row in rows)

    until(is_recorded)


def test_without_trusted_proxies_the_header_says_nothing(folder: Path) -> None:
    with serve_with_auth(f"sqlite:///{folder}/direct.db", folder) as server:
        exhaust(server, "6.6.6.6")
        assert ask_from(server, "7.7.7.7", "psk_5_wrong") == 429
        assert ask_from(server, "7.7.7.7", server.key) == 200


@pytest.mark.parametrize("path", [HOT, COLD])
@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "X-Forwarded-Host", "x-forwarded-anything", "Forwarded", "Via",
               "X-Real-IP"]
)  # fmt: skip
def test_a_server_that_asks_for_nothing_serves_no_proxy(
    server: Served, path: str, header: str
) -> None:
    name = server.queue()
    body = {"queue": name} if path == HOT else {"name": f"new-{name}"}
    refused = server.ask("POST", path, body, {header: "192.0.2.1"})
    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    assert "--auth" in refused.json["error"]["message"]
    assert server.ask("GET", "/v1/keys", None, {header: "192.0.2.1"}).status == 403
    assert server.post(path, body).status == 201


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_a_server_that_asks_for_keys_serves_proxies(proxied: Served, header: str) -> None:
    assert proxied.ask("GET", "/v1/queues", None, {header: "192.0.2.1"}).status == 200


@pytest.mark.parametrize("path", [HOT, COLD])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://localhost:1"},
        {"Origin": "http://localhost"},
        {"Origin": "https://localhost:PORT"},
        {"Origin": "http://127.0.0.1:PORT"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)
def test_a_page_of_another_port_may_not_write(
    server: Served, path: str, headers: dict[str, str]
) -> None:
    name = server.queue()
    body = {"queue": name} if path == HOT else {"name": f"new-{name}"}
    own = {"Host": f"localhost:{server.port}"}
    foreign = {key: value.replace("PORT", str(server.port)) for key, value in headers.items()}
    refused = server.ask("POST", path, body, {**own, **foreign})
    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    ours = {"Origin": f"http://localhost:{server.port}", "Sec-Fetch-Site": "same-origin"}
    assert server.ask("POST", path, body, {**own, **ours}).status == 201


@pytest.mark.parametrize("site", ["same-site", "cross-site", "none"])
def test_a_link_from_another_page_may_be_followed(server: Served, site: str) -> None:
    assert server.ask("GET", "/v1/queues", None, {"Sec-Fetch-Site": site}).status == 200


def test_blanks_after_a_key_do_not_belong_to_it(proxied: Served) -> None:
    shown = {"Authorization": f"Bearer {proxied.key} \t"}
    assert showing(proxied, None).ask("GET", "/v1/queues", None, shown).status == 200
