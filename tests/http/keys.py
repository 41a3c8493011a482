"""Servers that ask for credentials, and keys to show them."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

from tests.http.served import PENSTOCK, Served, served


def penstock(store: str, *words: object) -> Any:
    """What a command says, as JSON."""
    line = [str(word) for word in (PENSTOCK, *words, "--url", store, "--json")]
    said = subprocess.run(line, capture_output=True, check=True, text=True)
    return json.loads(said.stdout)


@contextmanager
def serve_with_auth(store: str, folder: Path, *words: object) -> Iterator[Served]:
    """Its first key is an administrator's, made at the store itself."""
    made = penstock(store, "key", "create", "root", "--role", "admin")
    with served(store, folder, "--auth", *words) as server:
        server.key = made["key"]
        yield server


def keyed(server: Served, *roles: str, **more: object) -> Served:
    """The same server, for another caller."""
    made = server.post("/v1/keys", {"name": "test", "roles": list(roles), **more})
    assert made.status == 201, made
    return showing(server, made.json["key"])


def showing(server: Served, key: str | None) -> Served:
    other = copy(server)
    other.key = key
    return other
