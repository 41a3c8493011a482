"""A server under test: the real command in a process of its own, and a caller that speaks HTTP."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from itertools import count
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any
from urllib.parse import urlencode

from tests.servers.places import free_port

PENSTOCK = Path(sys.executable).with_name("penstock")
WAIT_LIMIT_S = 150.0
# What a server is told that may send to this machine.
SENDING = ("--allow-private-callbacks", "--callback-ports", "any")
names = count(1)


class Reply:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def code(self) -> str:
        """Of the error."""
        code: str = self.json["error"]["code"]
        return code

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:500]!r}"


class Served:
    """One server process."""

    # What the app is mounted at.
    prefix = ""

    def __init__(self, store: str, folder: Path, *words: object, files: str | None = None) -> None:
        """`files` are the soft and the hard limit of open files, as in `100:200`."""
        self.store = store
        # What its callers show, if they show anything.
        self.key: str | None = None
        self.port = free_port()
        self.log = folder / f"server-{self.port}.log"
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK")}
        command = [PENSTOCK, "serve", "--port", self.port, "--url", store, *words]
        if files is not None:
            command = ["prlimit", f"--nofile={files}", *command]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command], cwd=folder, env=kept, stdout=log, stderr=log
            )

    def wait_until_ready(self) -> None:
        end = monotonic() + WAIT_LIMIT_S
        while True:
            assert self.process.poll() is None, self.log.read_text()
            assert monotonic() < end, self.log.read_text()
            try:
                if self.get("/readyz").status == 200:
                    return
            except ConnectionRefusedError:
                # It needs the processor more than we do.
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(0.02)

    def connect(self, timeout: float = WAIT_LIMIT_S) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        **query: object,
    ) -> Reply:
        """Bytes as they are, anything else as JSON."""
        connection = self.connect()
        given = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        where = self.prefix + (f"{path}?{urlencode(query, doseq=True)}" if query else path)
        shown = {} if self.key is None else {"Authorization": f"Bearer {self.key}"}
        try:
            connection.request(method, where, given, {**shown, **(headers or {})})
            return read(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: str, **query: object) -> Reply:
        return self.ask("GET", path, None, None, **query)

    def post(self, path: str, body: Any = None, **query: object) -> Reply:
        return self.ask("POST", path, body, None, **query)

    def put(self, path: str, body: Any = None, **query: object) -> Reply:
        return self.ask("PUT", path, body, None, **query)

    def queue(self, preset: str = "default", **settings: object) -> str:
        """A new queue, by a name that nobody else has."""
        name = f"q{next(names)}-{os.getpid()}"
        made = self.post("/v1/queues", {"name": name, "preset": preset, "settings": settings})
        assert made.status == 201, made
        return name

    def publish(self, queue: str, body: Any = None, **more: object) -> str:
        """The id."""
        reply = self.post("/v1/publish", {"queue": queue, "body": body, **more})
        assert reply.status == 201, reply
        id: str = reply.json["id"]
        return id

    def claim(self, queue: str, **more: object) -> list[Any]:
        reply = self.post("/v1/claim", {"queues": [{"queue": queue}], **more})
        assert reply.status == 200, reply
        messages: list[Any] = reply.json["messages"]
        return messages

    def claim_one(self, queue: str, **more: object) -> Any:
        (message,) = self.claim(queue, wait=20, **more)
        return message

    def message(self, id: str) -> Any:
        reply = self.get(f"/v1/messages/{id}")
        assert reply.status == 200, reply
        return reply.json

    def state(self, id: str) -> str:
        state: str = self.message(id)["state"]
        return state

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(WAIT_LIMIT_S)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def read(response: HTTPResponse) -> Reply:
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Reply(response.status, headers, response.read())


@contextmanager
def served(store: str, folder: Path, *words: object, files: str | None = None) -> Iterator[Served]:
    server = Served(store, folder, *words, files=files)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.end()


class Later:
    """A call under way in a thread."""

    def __init__(self, call: Any, *args: Any, **kwargs: Any) -> None:
        self.found: list[Any] = []
        self.thread = Thread(target=lambda: self.found.append(call(*args, **kwargs)), daemon=True)
        self.thread.start()

    @property
    def over(self) -> bool:
        return not self.thread.is_alive()

    def result(self) -> Any:
        self.thread.join(WAIT_LIMIT_S)
        (found,) = self.found
        return found


class Stream:
    """A listener to server-sent events."""

    def __init__(self, server: Served, last: str | None = None, **query: object) -> None:
        self.connection = server.connect(30)
        where = f"{server.prefix}/v1/events?{urlencode(query, doseq=True)}"
        headers = {} if last is None else {"Last-Event-ID": last}
        if server.key is not None:
            headers["Authorization"] = f"Bearer {server.key}"
        self.connection.request("GET", where, headers=headers)
        self.response = self.connection.getresponse()
        assert self.response.status == 200, self.response.read()
        self.last = last
        self.hello = self.frame()

    def frame(self) -> dict[str, str]:
        """The next one, of any kind."""
        found: dict[str, str] = {}
        for raw in iter(self.response.readline, b""):
            line = raw.decode().rstrip("\n")
            if not line:
                break
            name, _, value = line.partition(":")
            found[name] = value.strip()
        self.last = found.get("id", self.last)
        return found

    def event(self) -> Any:
        """The next event that is not a sign of life."""
        while True:
            frame = self.frame()
            assert frame, "the stream ended"
            if "data" in frame:
                return json.loads(frame["data"])

    def until(self, kind: str, id: str) -> list[Any]:
        """All events up to that one."""
        seen: list[Any] = []
        while not seen or (seen[-1]["kind"], seen[-1].get("id")) != (kind, id):
            seen.append(self.event())
        return seen

    def close(self) -> None:
        self.response.close()
        self.connection.close()


def raw(server: Served, text: bytes) -> bytes:
    """What the server says to these very bytes, until it closes the connection."""
    with dial(server) as connection:
        connection.sendall(text)
        return heard(connection)


def dial(server: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), WAIT_LIMIT_S)


def heard(connection: socket.socket) -> bytes:
    """All that the server says until it closes the connection."""
    return b"".join(iter(lambda: connection.recv(65_536), b""))
