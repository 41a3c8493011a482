"""A private server that speaks S3, and forgets all when it ends."""

import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from threading import Thread

CAP = 60.0


def environment(port: int) -> dict[str, str]:
    """Who may use its buckets."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }


def ask(port: int, method: str, path: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=CAP)
    try:
        connection.request(method, path)
        return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def serving(port: int) -> Iterator[None]:
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        try:
            assert any(b"Running on" in line for line in server.stderr)
            # It tells of every request, and waits for a reader.
            Thread(target=deque, args=(server.stderr, 0), daemon=True).start()
            yield
        finally:
            server.kill()
