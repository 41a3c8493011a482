"""Event listeners in a separate process, so that they do not slow down the measurement."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LISTEN = b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n"
READY = "ready"


@contextmanager
def listening(port: int, count: int) -> Iterator[None]:
    command = [sys.executable, "-m", "bench.http.listening", str(port), str(count)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as crowd:
        assert crowd.stdout is not None
        assert crowd.stdout.readline().strip() == READY
        yield
        crowd.communicate()


async def listen(port: int, count: int) -> None:
    """Listens until the parent closes the pipe."""
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for _, writer in streams:
        writer.write(LISTEN)
    readers = [asyncio.create_task(read_all(reader)) for reader, _ in streams]
    print(READY, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in readers:
        task.cancel()
    await asyncio.wait(readers)


async def read_all(reader: asyncio.StreamReader) -> None:
    while await reader.read(65_536):
        pass


if __name__ == "__main__":
    asyncio.run(listen(*map(int, sys.argv[1:3])))
