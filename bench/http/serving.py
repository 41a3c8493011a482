"""Server processes and their resource usage."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.usage import read_own_ticks
from tests.servers.places import free_port

TICKS = os.sysconf("SC_CLK_TCK")
MEGABYTE = 1_048_576
ECHO = """
import sys, uvicorn
async def app(scope, receive, send):
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", lifespan="off",
            access_log=False, log_level="critical", server_header=False)
"""


class Served:
    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid

    @property
    def cpu(self) -> float:
        """CPU seconds of all threads."""
        return read_own_ticks(self.pid) / TICKS

    @property
    def megabytes(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


def serve_echo(folder: Path) -> AbstractContextManager[Served]:
    port = free_port()
    return serve(folder, port, "-c", ECHO, str(port))


def serve_penstock(folder: Path, url: str) -> AbstractContextManager[Served]:
    port = free_port()
    return serve(folder, port, "-m", "penstock", "serve", "--port", str(port), "--url", url)


@contextmanager
def serve(folder: Path, port: int, *words: str) -> Iterator[Served]:
    """Starts a server. Its output is shown only if it fails."""
    with (
        (folder / f"{port}.log").open("a+") as said,
        subprocess.Popen([sys.executable, *words], stderr=said) as running,
    ):
        try:
            await_listening(port)
            yield Served(port, running.pid)
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait()
            said.seek(0)
            if "ERROR" in (text := said.read()):
                sys.stderr.write(text)


def await_listening(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.05)  # noqa: TID251 - a benchmark uses the real clock
        else:
            return
