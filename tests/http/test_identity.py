"""Tokens of an issuer: which are trusted, and which are not. Beside each refusal, one that is."""

import base64
import hmac
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from anyio import create_task_group
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from penstock import stores
from penstock.broker.credentials import Credentials
from penstock.errors import Forbidden, IdentityUnavailable, InvalidInput, Unauthenticated
from penstock.http.auth import jwks
from penstock.http.auth.authenticate import Authenticator
from penstock.http.auth.identity import TrustedIssuers, parse_token_scopes
from penstock.http.auth.jwt import check
from penstock.rules.access import Key, Right
from penstock.store import Store
from tests.http.issuer import AUDIENCE, Issuer, issuing, public
from tests.http.keys import showing
from tests.http.served import Served, served

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def the_issuer() -> Iterator[Issuer]:
    with issuing() as running:
        yield running


@pytest.fixture
def issuer(the_issuer: Issuer) -> Issuer:
    the_issuer.asked, the_issuer.answer = 0, None
    the_issuer.introspected.clear()
    return the_issuer


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with await stores.open("sqlite://") as opened:
        yield opened


class Time:
    """Of both clocks."""

    def __init__(self) -> None:
        self.on = 0.0

    def __call__(self) -> float:
        import time

        return time.time() + self.on


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def gate(issuer: Issuer, store: Store, time: Time) -> Authenticator:
    trusted = TrustedIssuers(
        issuer.url,
        AUDIENCE,
        f"{issuer.url}/keys",
        introspect_url=f"{issuer.url}/introspect",
        introspect_client="penstock",
        introspect_secret="hush",
    )
    made = Authenticator(store, trusted, now=time, clock=time)
    assert made.signed is not None
    made.signed.keys.clock = time
    return made


async def admit(gate: Authenticator, token: str, address: str = "192.0.2.1") -> Any:
    headers = [(b"authorization", b"Bearer " + token.encode())]
    return await gate.admit({"headers": headers, "client": (address, 1)})


@pytest.mark.parametrize("kid", ["r", "e", "d"])
async def test_a_token_of_the_issuer_is_believed(
    gate: Authenticator, issuer: Issuer, kid: str
) -> None:
    caller = await admit(gate, issuer.token(kid))
    assert (caller.subject, caller.tenant) == ("jwt:ada", "default")
    assert caller.access.allows(Right.PUBLISH, "default", "any")
    assert not caller.access.allows(Right.MANAGE, "default", "any")


WRONG: dict[str, dict[str, Any]] = {
    "expired": {"exp": 1_000_000},
    "not yet": {"nbf": 4_000_000_000},
    "made in the future": {"iat": 4_000_000_000},
    "for somebody else": {"aud": "other"},
    "for several others": {"aud": ["a", "b"]},
    "for nobody": {"aud": None},
    "of another issuer": {"iss": "https://evil.example"},
    "of nobody": {"iss": None},
    "without end": {"exp": None},
    "without a name": {"jti": None},
    "of no subject": {"sub": None},
    "of an empty subject": {"sub": ""},
    "of a subject that is a number": {"sub": 7},
    "of an endless subject": {"sub": "x" * 300},
    "of a subject with a line break": {"sub": "a\nb"},
    "an end as text": {"exp": "4000000000"},
    "an end past all ends": {"exp": 1e308},
    "a negative end": {"exp": -5},
}


@pytest.mark.parametrize("claims", WRONG.values(), ids=WRONG.keys())
async def test_a_token_that_does_not_hold(
    gate: Authenticator, issuer: Issuer, claims: dict[str, Any]
) -> None:
    with pytest.raises(Unauthenticated):
        await admit(gate, issuer.token(**claims))
    await admit(gate, issuer.token())


async def test_the_issuer_is_the_very_text(gate: Authenticator, issuer: Issuer) -> None:
    with pytest.raises(Unauthenticated):
        await admit(gate, issuer.token(iss=issuer.url + "/"))


async def test_a_token_for_several_is_for_us_too(gate: Authenticator, issuer: Issuer) -> None:
    await admit(gate, issuer.token(aud=["other", AUDIENCE]))


def make_unsigned(claims: dict[str, Any], **header: Any) -> str:
    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'typ': 'JWT', **header})}.{part(claims)}."


@pytest.mark.parametrize("name", ["none", "None", "nOnE", "", "HS256", "HS512", "RS1", 7])
async def test_a_token_signed_otherwise(gate: Authenticator, issuer: Issuer, name: Any) -> None:
    with pytest.raises(Unauthenticated):
        await admit(gate, make_unsigned(issuer.claims(), alg=name, kid="r"))


async def test_a_public_key_is_no_shared_secret(gate: Authenticator, issuer: Issuer) -> None:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    text = issuer.rsa.public_key().public_bytes(serialization.Encoding.DER, form)
    signed = make_unsigned(issuer.claims(), alg="HS256", kid="r").rstrip(".")
    mac = base64.urlsafe_b64encode(hmac.digest(text, signed.encode(), "sha256")).rstrip(b"=")
    with pytest.raises(Unauthenticated):
        await admit(gate, f"{signed}.{mac.decode()}")


@pytest.mark.parametrize(
    "kid", ["../../dev/null", "' OR 1=1--", "x" * 10_000, "x" * 300, "e", "", 7, ["r"], {"r": 1}]
)
async def test_a_key_that_is_not_there(gate: Authenticator, issuer: Issuer, kid: Any) -> None:
    good, claims, signature = issuer.token().split(".")
    assert good
    header = json.dumps({"alg": "RS256", "kid": kid}).encode()
    forged = base64.urlsafe_b64encode(header).rstrip(b"=").decode()
    with pytest.raises(Unauthenticated):
        await admit(gate, f"{forged}.{claims}.{signature}")


async def test_keys_in_the_token_itself_are_not_looked_at(
    gate: Authenticator, issuer: Issuer
) -> None:
    mine = rsa.generate_private_key(65_537, 2_048)
    inside = {"jwk": public(mine, "m", "RS256"), "jku": f"{issuer.url}/evil", "kid": "m"}
    token = jwt.encode(issuer.claims(), mine, "RS256", inside)
    with pytest.raises(Unauthenticated):
        await admit(gate, token)


async def test_what_must_be_understood_and_is_not(gate: Authenticator, issuer: Issuer) -> None:
    with pytest.raises(Unauthenticated):
        await admit(gate, issuer.token(headers={"crit": ["exp"]}))


async def test_a_signature_of_nothing(gate: Authenticator, issuer: Issuer) -> None:
    header, claims, _ = issuer.token("e").split(".")
    zero = base64.urlsafe_b64encode(bytes(64)).rstrip(b"=").decode()
    with pytest.raises(Unauthenticated):
        await admit(gate, f"{header}.{claims}.{zero}")


async def test_an_encrypted_token_is_not_read(gate: Authenticator) -> None:
    with pytest.raises(Unauthenticated):
        await admit(gate, "a.b.c.d.e")


async def test_a_changed_token(gate: Authenticator, issuer: Issuer) -> None:
    header, _, signature = issuer.token().split(".")
    other = issuer.token(sub="root").split(".")[1]
    with pytest.raises(Unauthenticated):
        await admit(gate, f"{header}.{other}.{signature}")


async def test_unknown_keys_ask_the_issuer_no_oftener(
    gate: Authenticator, issuer: Issuer, time: Time
) -> None:
    await admit(gate, issuer.token())
    for number in range(50):
        with pytest.raises((Unauthenticated, IdentityUnavailable)):
            await admit(gate, issuer.token(headers={"kid": f"k{number}"}), f"192.0.2.{number}")
    assert issuer.asked == jwks.FETCH_BURST
    time.on += jwks.FETCH_INTERVAL_S + 1
    with pytest.raises(Unauthenticated):
        await admit(gate, issuer.token(headers={"kid": "new"}), "198.51.100.1")
    assert issuer.asked == jwks.FETCH_BURST + 1
    await admit(gate, issuer.token("e"))


async def test_an_unknown_key_that_cannot_be_looked_up_is_no_wrong_credential(
    gate: Authenticator, issuer: Issuer
) -> None:
    """Callers of one address use new keys faster than the issuer is asked; none is locked out."""
    await admit(gate, issuer.token())
    for _ in range(jwks.FETCH_BURST - 1):
        with pytest.raises(Unauthenticated):
            await admit(gate, issuer.token(headers={"kid": "unknown"}))
    for _ in range(100):
        with pytest.raises(IdentityUnavailable):
            await admit(gate, issuer.token(headers={"kid": "unknown"}))
    await admit(gate, issuer.token("e"))


@pytest.mark.parametrize(
    "answer",
    [
        (500, b"", {}),
        (200, b"no json", {}),
        (200, b"[]", {}),
        (200, b'{"keys": 7}', {}),
        (200, b'{"keys": [' + b" " * 300_000 + b"]}", {}),
        (302, b"", {"location": "file:///etc/passwd"}),
    ],
)
async def test_the_last_good_keys_are_kept(
    gate: Authenticator, issuer: Issuer, time: Time, answer: tuple[int, bytes, dict[str, str]]
) -> None:
    await admit(gate, issuer.token())
    issuer.answer = answer
    time.on += jwks.CACHE_TTL_S + 1
    await admit(gate, issuer.token(sub="eve", exp=4_000_000_000))
    assert issuer.asked == 2


async def test_without_keys_nobody_can_be_let_in_yet(gate: Authenticator, issuer: Issuer) -> None:
    issuer.answer = (500, b"", {})
    with pytest.raises(IdentityUnavailable):
        await admit(gate, issuer.token())


async def test_a_key_that_was_taken_out_counts_no_more(
    gate: Authenticator, issuer: Issuer, time: Time
) -> None:
    token = issuer.token(exp=4_000_000_000)
    await admit(gate, token)
    issuer.answer = (200, json.dumps({"keys": issuer.keys[1:]}).encode(), {})
    time.on += jwks.CACHE_TTL_S + 1
    with pytest.raises(Unauthenticated):
        await admit(gate, token)
    await admit(gate, issuer.token("e", exp=4_000_000_000))


async def test_a_new_key_is_found_when_it_is_used(gate: Authenticator, issuer: Issuer) -> None:
    """At once, also right after a fetch; the callers that come together share fetches."""
    issuer.answer = (200, json.dumps({"keys": issuer.keys[:1]}).encode(), {})
    await admit(gate, issuer.token())
    issuer.answer = None
    async with create_task_group() as group:
        for number in range(40):
            group.start_soon(admit, gate, issuer.token("e", sub=f"worker-{number}"))
    assert issuer.asked <= jwks.FETCH_BURST


async def test_a_token_of_a_retired_key_is_wrong_and_not_unknown(
    gate: Authenticator, issuer: Issuer
) -> None:
    """Its caller has to get a new token, and not to try again."""
    await admit(gate, issuer.token("e"))
    issuer.answer = (200, json.dumps({"keys": issuer.keys[:1]}).encode(), {})
    for _ in range(jwks.FETCH_BURST):
        with pytest.raises((Unauthenticated, IdentityUnavailable)):
            await admit(gate, issuer.token("r", {"kid": "unknown"}))
    for _ in range(jwks.FETCH_BURST):
        with pytest.raises(Unauthenticated):
            await admit(gate, issuer.token("e", jti="2"))
    issuer.answer = None
    await admit(gate, issuer.token())


async def test_a_key_that_was_replaced_under_its_name_is_found(
    gate: Authenticator, issuer: Issuer
) -> None:
    await admit(gate, issuer.token())
    new = rsa.generate_private_key(65_537, 2_048)
    token = jwt.encode(issuer.claims(), new, "RS256", {"kid": "r"})
    with pytest.raises(Unauthenticated):
        await admit(gate, token)
    keys = [public(new, "r", "RS256"), *issuer.keys[1:]]
    issuer.answer = (200, json.dumps({"keys": keys}).encode(), {})
    await admit(gate, token)
    assert issuer.asked == 3


async def test_wrong_signatures_ask_the_issuer_no_oftener(
    gate: Authenticator, issuer: Issuer
) -> None:
    other = rsa.generate_private_key(65_537, 2_048)
    for number in range(10):
        forged = jwt.encode(issuer.claims(jti=str(number)), other, "RS256", {"kid": "r"})
        with pytest.raises(Unauthenticated):
            await admit(gate, forged)
    assert issuer.asked == jwks.FETCH_BURST


async def test_two_keys_of_one_name_are_told_apart_by_their_kind(
    gate: Authenticator, issuer: Issuer
) -> None:
    same = [{**key, "kid": "r"} for key in issuer.keys]
    issuer.answer = (200, json.dumps({"keys": same}).encode(), {})
    await admit(gate, issuer.token())


@pytest.mark.parametrize("keys", ["twice", "short", "many"])
async def test_keys_that_are_not_used(gate: Authenticator, issuer: Issuer, keys: str) -> None:
    good = issuer.keys[0]
    short = public(rsa.generate_private_key(65_537, 1_024), "r", "RS256")
    found = {"twice": [good, good], "short": [short], "many": [short] * 101 + [good]}[keys]
    issuer.answer = (200, json.dumps({"keys": found}).encode(), {})
    with pytest.raises(Unauthenticated):
        await admit(gate, issuer.token())


async def test_types_are_what_the_token_says(gate: Authenticator, issuer: Issuer) -> None:
    assert (await admit(gate, issuer.token())).types == {"*"}
    assert (await admit(gate, issuer.token(eventTypes=["*"]))).types == {"*"}
    caller = await admit(gate, issuer.token(eventTypes=["A", "B"]))
    assert caller.filter_types([]) == ("A", "B")
    assert caller.filter_types(["A"]) == ("A",)
    for foreign in ("C", "a", "*", "A*", "\uff21"):
        with pytest.raises(Exception, match="may not claim"):
            caller.filter_types([foreign])


@pytest.mark.parametrize("empty", [[], "", " "])
async def test_a_token_with_no_types_claims_nothing(
    gate: Authenticator, issuer: Issuer, empty: Any
) -> None:
    caller = await admit(gate, issuer.token(eventTypes=empty))
    for asked in ([], ["A"]):
        with pytest.raises(Forbidden):
            caller.filter_types(asked)


@pytest.mark.parametrize("wrong", [[1], ["A", None], {}, {"A": True}, 7, True])
async def test_types_of_a_wrong_shape_are_refused(
    gate: Authenticator, issuer: Issuer, wrong: Any
) -> None:
    with pytest.raises(Unauthenticated, match="eventTypes"):
        await admit(gate, issuer.token(eventTypes=wrong))
    assert (await admit(gate, issuer.token(eventTypes="A B"))).filter_types([]) == ("A", "B")


async def test_an_issuer_may_be_held_to_say_the_types(issuer: Issuer, store: Store) -> None:
    trusted = TrustedIssuers(
        issuer.url, AUDIENCE, f"{issuer.url}/keys", require_event_types=True
    )  # fmt: skip
    gate = Authenticator(store, trusted)
    with pytest.raises(Unauthenticated, match="eventTypes"):
        await admit(gate, issuer.token())
    assert (await admit(gate, issuer.token(eventTypes=["*"]))).types == {"*"}


async def test_a_subject_cannot_be_taken_for_another(issuer: Issuer, store: Store) -> None:
    """Neither for an API key, nor for a subject of another tenant or kind of token."""
    trusted = TrustedIssuers(
        issuer.url, AUDIENCE, f"{issuer.url}/keys", tenant_claim="org",
        introspect_url=f"{issuer.url}/introspect",
    )  # fmt: skip
    gate = Authenticator(store, trusted)
    issuer.opaque["opaque-3"] = {"active": True, "sub": "w1", "org": "acme"}
    key, token = await Credentials(store).create_key(Key(id="", name="k", roles=("worker",)))
    callers = [
        await admit(gate, token),
        await admit(gate, issuer.token(sub=f"key:{key.id}", org="default")),
        await admit(gate, issuer.token(sub="w1", org="acme")),
        await admit(gate, issuer.token(sub="w1", org="default")),
        await admit(gate, issuer.token(sub="acme/w1", org="default")),
        await admit(gate, issuer.token(sub="acme/jwt:w1", org="default")),
        await admit(gate, "opaque-3"),
    ]
    assert len({caller.holder for caller in callers}) == len(callers)
    again = await admit(gate, issuer.token(sub="w1", org="acme", jti="2"))
    assert again.holder == callers[2].holder


async def test_scopes_of_others_give_nothing(gate: Authenticator, issuer: Issuer) -> None:
    given = "admin publish penstock:dance penstock:access:a* penstock:read:a*"
    caller = await admit(gate, issuer.token(scope=given))
    assert caller.access.rights == {Right.READ}
    assert not caller.access.allows(Right.PUBLISH, "default", "a")
    assert caller.access.allows(Right.READ, "default", "ab")
    assert not caller.access.allows(Right.READ, "default", "b")


async def test_the_tenant_is_the_claims_alone(issuer: Issuer, store: Store) -> None:
    trusted = TrustedIssuers(issuer.url, AUDIENCE, f"{issuer.url}/keys", tenant_claim="org")
    gate = Authenticator(store, trusted)
    assert (await admit(gate, issuer.token(org="acme"))).tenant == "acme"
    for wrong in (None, "", "a/b", 7, ["acme"]):
        with pytest.raises(Unauthenticated):
            await admit(gate, issuer.token(org=wrong, tenant="acme"))


async def test_an_opaque_token_is_asked_about_once_a_minute(
    gate: Authenticator, issuer: Issuer, time: Time
) -> None:
    issuer.opaque["opaque-1"] = {"active": True, "sub": "shop", "scope": "penstock:publish"}
    caller = await admit(gate, "opaque-1")
    assert caller.subject == "opaque:shop"
    assert caller.access.allows(Right.PUBLISH, "default", "any")
    assert not caller.access.allows(Right.READ, "default", "any")
    time.on += 50
    await admit(gate, "opaque-1")
    assert issuer.introspected == ["opaque-1"]
    issuer.opaque.clear()
    time.on += 11
    with pytest.raises(Unauthenticated):
        await admit(gate, "opaque-1")


@pytest.mark.parametrize(
    "told",
    [{"active": False}, {"active": "true", "sub": "x"}, {"active": 1, "sub": "x"}, {"active": True},
     {"active": True, "sub": "x", "exp": 5}, {"active": True, "sub": "x", "exp": "soon"}],
)  # fmt: skip
async def test_an_opaque_token_that_does_not_hold(
    gate: Authenticator, issuer: Issuer, told: dict[str, Any]
) -> None:
    issuer.opaque["opaque-2"] = told
    with pytest.raises(Unauthenticated):
        await admit(gate, "opaque-2")


@pytest.mark.parametrize(
    ("trusted", "text"),
    [
        (TrustedIssuers(jwks_url="https://a.example/keys"), "jwt_issuer"),
        (TrustedIssuers("i", "a", "http://a.example/keys"), "https"),
        (TrustedIssuers("i", "a", "file:///etc/passwd"), "https"),
        (TrustedIssuers(introspect_url="http://a.example/i"), "https"),
        (TrustedIssuers("i", "a", "https://a.example/keys", ("HS256",)), "HS256"),
        (TrustedIssuers("i", "a", "https://a.example/keys", ("none",)), "none"),
    ],
)
def test_what_an_operator_says_is_checked(trusted: TrustedIssuers, text: str) -> None:
    with pytest.raises(Exception, match=text):
        check(trusted)
    check(TrustedIssuers("i", "a", "https://a.example/keys"))


def test_a_server_believes_an_issuer(issuer: Issuer, folder: Path, tmp_path: Path) -> None:
    """codeQ: eventTypes, scopes, and the subject of a lease."""
    words = ("--jwt-issuer", issuer.url, "--jwt-audience", AUDIENCE, "--jwks-url", issuer.url)
    with served(f"sqlite:///{tmp_path}/jwt.db", folder, *words) as server:
        producer = showing(server, issuer.token(sub="shop", scope="penstock:publish"))
        worker = showing(server, issuer.token(sub="w1", scope="penstock:consume", eventTypes=["A"]))
        other = showing(server, issuer.token(sub="w2", scope="penstock:consume"))
        for kind in ("A", "B"):
            producer.publish("default", 1, type=kind)
        wanted = {"queues": [{"queue": "default", "types": ["B"]}]}
        assert worker.post("/v1/claim", wanted).status == 403
        assert producer.post("/v1/claim", wanted).status == 403
        (message,) = worker.claim("default", limit=10)
        assert message["type"] == "A"
        assert other.post("/v1/extend", {"token": message["token"], "lease": 60}).status == 403
        assert worker.post("/v1/extend", {"token": message["token"], "lease": 60}).status == 200
        assert showing(server, None).get("/v1/queues").status == 401
        assert_secrets_unsaid(server, producer)


def test_a_rotation_right_after_a_fetch_locks_nobody_out(
    issuer: Issuer, folder: Path, tmp_path: Path
) -> None:
    words = ("--jwt-issuer", issuer.url, "--jwt-audience", AUDIENCE, "--jwks-url", issuer.url)
    issuer.answer = (200, json.dumps({"keys": issuer.keys[:1]}).encode(), {})
    store = f"sqlite:///{tmp_path}/rotation.db"
    with served(store, folder, *words) as server:
        assert showing(server, issuer.token()).get("/v1/queues").status == 200
        issuer.answer = None
        assert showing(server, issuer.token("e")).get("/v1/queues").status == 200
        strange = [
            showing(server, issuer.token("d", {"kid": f"k{number}"})) for number in range(40)
        ]
        refused = [each.get("/v1/queues") for each in strange][-1]
        assert (refused.status, refused.code) == (503, "IDENTITY_UNAVAILABLE")
        assert refused.headers["retry-after"]
        assert showing(server, issuer.token(sub="eve")).get("/v1/queues").status == 200


def assert_secrets_unsaid(server: Served, caller: Served) -> None:
    assert caller.key is not None
    assert caller.key not in server.log.read_text()


async def test_scopes_of_codeq_allow_single_verbs(issuer: Issuer, store: Store) -> None:
    trusted = TrustedIssuers(
        issuer.url, AUDIENCE, f"{issuer.url}/keys", token_scopes=parse_token_scopes("codeq")
    )
    gate = Authenticator(store, trusted)
    caller = await admit(gate, issuer.token(scope="codeq:claim codeq:result"))
    assert caller.access.rights == {Right.CONSUME}
    for path in ("/v1/claim", "/v1/complete", "/v1/complete/batch", "/v1/fail", "/v1/artifacts/x"):
        caller.check_verb(path)
    for path, verb in (("/v1/nack", "nack"), ("/v1/extend/batch", "extend"),
                       ("/v1/subscriptions", "subscribe")):  # fmt: skip
        with pytest.raises(Forbidden, match=f"do not allow it to {verb}"):
            caller.check_verb(path)
    assert (await admit(gate, issuer.token(scope="codeq:admin"))).access.rights == set()
    both = await admit(gate, issuer.token(scope="codeq:claim penstock:consume"))
    assert both.verbs is None


def test_scopes_are_named_with_rights_and_verbs() -> None:
    found = parse_token_scopes("jobs:run=claim+complete, jobs:add=publish")
    assert found == {"jobs:run": ("claim", "complete"), "jobs:add": ("publish",)}
    for wrong in ("jobs", "=claim", "jobs=work", "jobs="):
        with pytest.raises(InvalidInput, match="token-scopes"):
            parse_token_scopes(wrong)


async def test_an_issuer_may_be_held_to_further_claims(issuer: Issuer, store: Store) -> None:
    trusted = TrustedIssuers(
        issuer.url, AUDIENCE, f"{issuer.url}/keys", require_claims=("iat", "eventTypes")
    )
    gate = Authenticator(store, trusted)
    for token in (issuer.token(iat=None, eventTypes=["A"]), issuer.token()):
        with pytest.raises(Unauthenticated, match="missing"):
            await admit(gate, token)
    assert (await admit(gate, issuer.token(eventTypes=["A"]))).types == {"A"}


async def test_accounts_are_looked_up_with_an_identity_service(
    issuer: Issuer, store: Store
) -> None:
    trusted = TrustedIssuers(
        issuer.url, AUDIENCE, f"{issuer.url}/keys", tenant_claim="tenantId",
        introspect_url=f"{issuer.url}/v1/accounts/lookup", introspect_secret="k&1",
        introspect_kind="lookup",
    )  # fmt: skip
    gate = Authenticator(store, trusted)
    id_token = jwt.encode({"sub": "ada"}, "s" * 32, "HS256")
    user = {"localId": "u1", "email": "ada@example.org", "tenantId": "acme"}
    issuer.accounts = {id_token: [user], "admin": [{**user, "role": "ADMIN"}], "none": [],
                       "gone": [{**user, "status": "SUSPENDED"}]}  # fmt: skip
    caller = await admit(gate, id_token)
    assert (caller.subject, caller.tenant) == ("opaque:u1", "acme")
    assert caller.access.rights == {Right.PUBLISH, Right.READ}
    assert issuer.lookups == ["/v1/accounts/lookup?key=k%261"]
    assert Right.MANAGE in (await admit(gate, "admin")).access.rights
    for token in ("none", "gone", "unknown"):
        with pytest.raises(Unauthenticated):
            await admit(gate, token)
    worker = await admit(gate, issuer.token(tenantId="acme"))
    assert worker.subject == "jwt:ada"


def test_a_server_holds_tokens_to_the_verbs_of_their_scopes(issuer: Issuer, tmp_path: Path) -> None:
    words = ["--jwt-issuer", issuer.url, "--jwt-audience", AUDIENCE, "--jwks-url",
             f"{issuer.url}/keys", "--token-scopes", "codeq"]  # fmt: skip
    with served(f"sqlite:///{tmp_path}/queue.db", tmp_path, *words) as server:
        operator = showing(server, issuer.token(scope="penstock:*"))
        queue = operator.queue()
        operator.publish(queue)
        worker = showing(server, issuer.token(scope="codeq:claim codeq:result"))
        (message,) = worker.claim(queue)
        refused = worker.post("/v1/nack", {"token": message["token"]})
        assert (refused.status, refused.code) == (403, "FORBIDDEN")
        assert worker.post("/v1/subscriptions", {"url": "x", "queues": [queue]}).status == 403
        done = worker.post("/v1/complete", {"token": message["token"], "result": 1})
        assert done.status == 200
