"""The service against a raw echo of the same body: python -m bench.http [--store URL].

One server process, 64 connections, one process that asks. Echo and verbs run in turn; the ratio is
of requests a second, and of the server's CPU a request, which a busy machine blurs less.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import msgspec
import uvloop

from tests.servers.places import free_port
from tests.servers.postgres import Postgres

HOME = Path(__file__).parents[1] / ".bench"
CONNECTIONS = 64
PARKED = 2_000
TICKS = os.sysconf("SC_CLK_TCK")
BODY = json.dumps({"text": "x" * 180})
PUBLISH = f'{{"queue":"default","body":{BODY}}}'.encode()
CLAIM = b'{"queues":[{"queue":"default"}]}'
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
Next = Callable[[bytes], bytes]


def request(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def always(path: str, body: bytes) -> Next:
    sent = request(path, body)
    return lambda _: sent


def claim_then_complete(answer: bytes) -> bytes:
    """A claim, and a complete of what it gave."""
    _, found, rest = answer.partition(b'"token":"')
    if not found:
        return request("/v1/claim", CLAIM)
    return request("/v1/complete", b'{"token":"' + rest.partition(b'"')[0] + b'"}')


class Asker(asyncio.Protocol):
    """One connection: the next request when the last one is answered."""

    def __init__(self, crowd: "Crowd") -> None:
        self.crowd = crowd
        self.seen = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.ask(b"")

    def ask(self, answer: bytes) -> None:
        self.asked_at = time.perf_counter()
        self.transport.write(self.crowd.next(answer))

    def data_received(self, data: bytes) -> None:
        self.seen += data
        head, end, body = self.seen.partition(b"\r\n\r\n")
        if not end:
            return
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        if len(body) < size:
            return
        self.seen = b""
        if not self.crowd.over:
            self.crowd.answered(head, time.perf_counter() - self.asked_at)
            self.ask(body)


class Crowd:
    def __init__(self, next: Next) -> None:
        self.next = next
        self.count = 0
        self.over = False
        self.took: list[float] = []

    def answered(self, head: bytes, took: float) -> None:
        assert head.startswith((b"HTTP/1.1 20",)), head
        self.count += 1
        self.took.append(took)


class Run(msgspec.Struct):
    rate: float
    cpu: float
    p50: float
    p99: float


async def measured(port: int, pid: int, next: Next, seconds: float) -> Run:
    crowd = Crowd(next)
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: Asker(crowd), "127.0.0.1", port)
        for _ in range(CONNECTIONS)
    ]
    await asyncio.sleep(0.3)
    count, began, used = crowd.count, time.perf_counter(), cpu(pid)
    crowd.took.clear()
    await asyncio.sleep(seconds)
    count, took, used = crowd.count - count, time.perf_counter() - began, cpu(pid) - used
    crowd.over = True
    for transport, _ in made:
        transport.close()
    ordered = sorted(crowd.took)
    return Run(
        count / took,
        used / count * 1e6,
        ordered[len(ordered) // 2] * 1e3,
        ordered[int(len(ordered) * 0.99)] * 1e3,
    )


def cpu(pid: int) -> float:
    """Seconds of all threads of the process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def process(log: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    """What it says is for its log, and for us only if something goes wrong."""
    with (
        log.open("a+") as said,
        subprocess.Popen([sys.executable, *words], stderr=said) as running,
    ):
        try:
            yield running
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait()
            said.seek(0)
            if "ERROR" in (text := said.read()):
                sys.stderr.write(text)


async def listening(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return


async def parked(port: int, pid: int) -> tuple[float, float, float]:
    """Idle CPU in percent, and p50 and p99 of a wake-up in ms, with thousands of long polls."""
    asked = b'{"queues":[{"queue":"default"}],"wait":30}'
    waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(PARKED)]
    for _, writer in waiting:
        writer.write(request("/v1/claim", asked))
    await asyncio.sleep(2)
    used = cpu(pid)
    await asyncio.sleep(5)
    idle = (cpu(pid) - used) / 5 * 100
    publisher = await asyncio.open_connection("127.0.0.1", port)
    took: list[float] = []
    for number in range(100):
        began = time.perf_counter()
        publisher[1].write(request("/v1/publish", PUBLISH))
        await waiting[number][0].readuntil(b"\r\n\r\n")
        took.append(time.perf_counter() - began)
        await publisher[0].readuntil(b"}")
        await asyncio.sleep(0.02)
    for _, writer in (*waiting, publisher):
        writer.close()
    return idle, statistics.median(took) * 1e3, sorted(took)[-2] * 1e3


def row(name: str, run: Run, echo: Run) -> None:
    times = f"p50 {run.p50:5.1f} p99 {run.p99:6.1f} ms"
    ratios = f"ratio {run.rate / echo.rate:.2f}  cpu x{run.cpu / echo.cpu:.2f}"
    print(f"{name:<18}{run.rate:>9,.0f}/s {run.cpu:>7.1f} us  {times}  {ratios}", flush=True)


async def bench(store: str, folder: str, seconds: float) -> None:
    ports, log = (free_port(), free_port()), Path(folder) / "log"
    serve = ("-m", "penstock", "serve", "--port", str(ports[0]), "--url", store)
    with process(log, "-c", ECHO, str(ports[1])) as echo, process(log, *serve) as server:
        for port in ports:
            await listening(port)
        batch = b'{"messages":[' + b",".join([PUBLISH] * 100) + b"]}"
        for name, next in (
            ("publish", always("/v1/publish", PUBLISH)),
            ("claim+complete", claim_then_complete),
            ("publish 100", always("/v1/publish/batch", batch)),
        ):
            sent = batch if name == "publish 100" else PUBLISH
            raw = await measured(ports[1], echo.pid, always("/", sent), seconds)
            row(f"  echo {len(sent)}", raw, raw)
            row(name, await measured(ports[0], server.pid, next, seconds), raw)
    serve = (*serve[:-1], f"sqlite:///{folder}/parked.db") if "sqlite" in store else serve
    with process(log, *serve) as server:
        await listening(ports[0])
        await drain(ports[0])
        idle, p50, p99 = await parked(ports[0], server.pid)
        print(
            f"{PARKED} parked claims: idle {idle:.2f} % CPU, wake-up p50 {p50:.2f} p99 {p99:.2f} ms"
        )


async def drain(port: int) -> None:
    """Nothing is left that a parked claim would get at once."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    purge = b'{"places":["ready","scheduled"],"limit":10000}'
    while True:
        writer.write(request("/v1/queues/default/purge", purge))
        await reader.readuntil(b"\r\n\r\n")
        if b'"purged":0' in await reader.readuntil(b"}"):
            writer.close()
            return


def main() -> None:
    parser = argparse.ArgumentParser("./dev bench http", description=__doc__)
    parser.add_argument("--store", default="sqlite", help="sqlite, postgres, or a URL")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each run")
    given = parser.parse_args()
    HOME.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=HOME) as folder:
        if given.store == "postgres":
            with Postgres({}, parent=None) as postgres, postgres.database() as url:
                uvloop.run(bench(url, folder, given.seconds))
            return
        url = f"sqlite:///{folder}/queue.db" if given.store == "sqlite" else given.store
        uvloop.run(bench(url, folder, given.seconds))


if __name__ == "__main__":
    main()
