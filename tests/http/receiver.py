"""A receiver of callbacks and notices on this machine, which answers as it is told to."""

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Thread
from time import monotonic
from typing import Any, NamedTuple

from standardwebhooks import Webhook

WAIT_LIMIT_S = 60.0
# Instead of a status: these very bytes, and then silence.
Answer = int | bytes


class Post(NamedTuple):
    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    def verify(self, secret: str) -> Any:
        return Webhook(secret).verify(self.body, self.headers)


class Receiver(ThreadingHTTPServer):
    """To each path `answers` one after the other, the last one from then on; 200 without any."""

    daemon_threads = True

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.answers: dict[str, list[Answer]] = {}
        self.changed = Condition()
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that was killed, or had read enough."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def take(self, post: Post) -> Answer:
        with self.changed:
            self.posts.append(post)
            self.changed.notify_all()
            answers = self.answers.get(post.path, [200])
            return answers.pop(0) if len(answers) > 1 else answers[0]

    def of(self, path: str) -> list[Post]:
        with self.changed:
            return [post for post in self.posts if post.path == path]

    def wait(self, path: str, count: int = 1, patience: float = WAIT_LIMIT_S) -> list[Post]:
        """The first so many to a path."""
        end = monotonic() + patience
        with self.changed:
            while True:
                found = [post for post in self.posts if post.path == path]
                if len(found) >= count:
                    return found
                assert self.changed.wait(end - monotonic()), f"{len(found)} of {count} at {path}"


class Handler(BaseHTTPRequestHandler):
    server: Receiver
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.take(Post(self.path, headers, body, monotonic()))
        if isinstance(answer, bytes):
            self.wfile.write(answer)
            self.connection.settimeout(WAIT_LIMIT_S)
            self.connection.recv(1)
            self.close_connection = True
            return
        self.send_response(answer)
        if 300 <= answer < 400:
            self.send_header("location", f"{self.server.url}/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.take(Post(self.path, {}, b"", monotonic()))
        self.send_error(404)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.shutdown()
        receiver.server_close()
        thread.join()


def silent() -> socket.socket:
    """Listens, and never says a word."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener
