"""Signing in to the dashboard with a token of an issuer."""

from collections.abc import Iterator

import pytest

from tests.http.issuer import AUDIENCE, Issuer, issuing
from tests.http.keys import showing
from tests.http.served import Served, served

GROUP = "a-department-with-a-rather-long-name-{number}"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with issuing() as running:
        yield running


@pytest.fixture(scope="module")
def server(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("sessions")
    words = ("--jwt-issuer", issuer.url, "--jwt-audience", AUDIENCE, "--jwks-url", issuer.url)
    with served(f"sqlite:///{folder}/jwt.db", folder, *words) as running:
        yield running


def test_a_token_signs_a_browser_in_with_its_rights(server: Served, issuer: Issuer) -> None:
    given = showing(server, None).post("/v1/session", {"key": issuer.token(scope="penstock:read")})
    assert given.status == 200, given
    cookie = {"Cookie": given.headers["set-cookie"].split(";")[0]}
    nobody = showing(server, None)
    session = nobody.ask("GET", "/v1/session", None, cookie).json
    assert (session["signed_in"], session["grants"]) == (True, ["read"])
    assert session["subject"] == "jwt:ada"
    assert nobody.ask("GET", "/v1/queues", None, cookie).status == 200
    csrf = {**cookie, "X-CSRF-Token": session["csrf"]}
    refused = nobody.ask("POST", "/v1/queues", {"name": "mail"}, csrf)
    assert (refused.status, refused.code) == (403, "FORBIDDEN")


def test_a_token_whose_cookie_a_browser_would_drop_is_refused(
    server: Served, issuer: Issuer
) -> None:
    groups = [GROUP.format(number=number) for number in range(80)]
    token = issuer.token(scope="penstock:read", groups=groups)
    assert showing(server, token).get("/v1/queues").status == 200
    refused = showing(server, None).post("/v1/session", {"key": token})
    assert (refused.status, refused.code) == (422, "INVALID_INPUT")
    assert "sign in with an API key" in refused.json["error"]["message"]
    assert "set-cookie" not in refused.headers
