"""Places for artifacts: a directory, and a bucket of a server that speaks S3."""

import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from threading import Thread
from typing import TypeAlias

import pytest

from penstock.artifacts.place import Place, opened
from tests.servers.places import free_port

CAP = 60.0
SECRET = bytes(32)
Shared: TypeAlias = Callable[[bytes], Place]
names = count(1)


def ask(port: int, method: str, path: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=CAP)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture(scope="session")
def s3() -> Iterator[int]:
    """The port of a private server."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        try:
            assert any(b"Running on" in line for line in server.stderr)
            # It tells of every request, and waits for a reader.
            Thread(target=deque, args=(server.stderr, 0), daemon=True).start()
            yield port
        finally:
            server.kill()


@pytest.fixture
def bucket(s3: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new one; who may use it is said by the environment."""
    name = f"bucket-{os.getpid()}-{next(names)}"
    for variable, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(variable, value)
    assert ask(s3, "PUT", f"/{name}") == 200
    return f"s3://{name}/some/prefix"


@pytest.fixture(params=["folder", "bucket"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    """One place, for the store with that secret."""
    where = tmp_path / "files" if request.param == "folder" else request.getfixturevalue("bucket")
    return lambda secret: opened(str(where), secret)


@pytest.fixture
def place(shared: Shared) -> Place:
    return shared(SECRET)
