"""An issuer of tokens on loopback: its keys, its answers, and how often it was asked."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

AUDIENCE = "penstock"
Pair = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def public(pair: Pair, kid: str, algorithm: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(get_default_algorithms()[algorithm].to_jwk(pair.public_key()))
    return {**made, "kid": kid, "use": "sig", "alg": algorithm}


class Issuer:
    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(65_537, 2_048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.edwards = ed25519.Ed25519PrivateKey.generate()
        self.keys = [
            public(self.rsa, "r", "RS256"),
            public(self.ec, "e", "ES256"),
            public(self.edwards, "d", "EdDSA"),
        ]
        self.asked = 0
        # What is answered instead of the keys.
        self.answer: tuple[int, bytes, dict[str, str]] | None = None
        self.opaque: dict[str, dict[str, Any]] = {}
        self.introspected: list[str] = []
        # Accounts by token, and the lookups that came.
        self.accounts: dict[str, list[dict[str, Any]]] = {}
        self.lookups: list[str] = []
        self.url = ""

    def claims(self, **more: Any) -> dict[str, Any]:
        now = int(time.time())
        usual = {
            "iss": self.url, "aud": AUDIENCE, "sub": "ada", "jti": "1", "iat": now,
            "exp": now + 600, "scope": "openid penstock:publish penstock:consume penstock:read",
        }  # fmt: skip
        given = {**usual, **more}
        return {name: value for name, value in given.items() if value is not None}

    def token(self, kid: str = "r", headers: dict[str, Any] | None = None, **claims: Any) -> str:
        pairs: dict[str, tuple[Pair, str]] = {
            "r": (self.rsa, "RS256"),
            "e": (self.ec, "ES256"),
            "d": (self.edwards, "EdDSA"),
        }
        pair, algorithm = pairs[kid]
        return jwt.encode(self.claims(**claims), pair, algorithm, {"kid": kid, **(headers or {})})

    def look_up(self, path: str, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        """As Identity services answer: 400 for a token they did not issue."""
        self.lookups.append(path)
        users = self.accounts.get(json.loads(body)["idToken"])
        return (
            (400, b"{}", {}) if users is None else (200, json.dumps({"users": users}).encode(), {})
        )

    def reply(self, path: str, form: dict[str, list[str]]) -> tuple[int, bytes, dict[str, str]]:
        if path == "/introspect":
            (token,) = form["token"]
            self.introspected.append(token)
            return 200, json.dumps(self.opaque.get(token, {"active": False})).encode(), {}
        self.asked += 1
        return self.answer or (200, json.dumps({"keys": self.keys}).encode(), {})


@contextmanager
def issuing() -> Iterator[Issuer]:
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path.startswith("/v1/accounts/lookup"):
                self.send(*issuer.look_up(self.path, body))
            else:
                self.reply(parse_qs(body.decode()))

        def reply(self, form: dict[str, list[str]]) -> None:
            self.send(*issuer.reply(self.path, form))

        def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield issuer
        server.shutdown()
        thread.join()
