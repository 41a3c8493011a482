"""A proxy before a server that refuses some calls, and loses the answers to others."""

from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Literal, TypeAlias

# Lose: the call is made, and its answer is lost. Twice: it is made twice, and answered once.
Treatment: TypeAlias = Literal["forward", "refuse", "lose", "twice"]


class FlakyProxy(ThreadingHTTPServer):
    """`treat` gets the path, and how many calls of that path came before."""

    def __init__(self, port: int, treat: Callable[[str, int], Treatment]) -> None:
        super().__init__(("127.0.0.1", 0), FlakyHandler)
        self.port = port
        self.treat = treat
        self.asked: list[str] = []
        self.answered: list[int] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> "FlakyProxy":
        Thread(target=self.serve_forever).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()


class FlakyHandler(BaseHTTPRequestHandler):
    server: FlakyProxy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.partition("?")[0]
        treatment = self.server.treat(path, self.server.asked.count(path))
        self.server.asked.append(path)
        if treatment == "refuse":
            self.answer(503, b'{"error": {"code": "STORE_BUSY", "message": "busy"}}')
            return
        replies = [self.forward(body) for _ in range(2 if treatment == "twice" else 1)]
        if treatment != "lose":
            self.answer(*replies[-1])

    def do_GET(self) -> None:
        self.do_POST()

    def forward(self, body: bytes) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self.server.port)
        shown = self.headers["authorization"]
        headers = {} if shown is None else {"authorization": shown}
        try:
            connection.request(self.command, self.path, body, headers)
            reply = connection.getresponse()
            return reply.status, reply.read()
        finally:
            connection.close()

    def answer(self, status: int, body: bytes) -> None:
        self.server.answered.append(status)
        with suppress(OSError):
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *words: object) -> None:
        pass


def refuse_every_other_call(path: str, before: int) -> Treatment:
    """Answers 503. The caller sees the second answer to each `complete`, 409."""
    if before % 2 == 0:
        return "refuse"
    return "twice" if path == "/v1/complete" else "forward"
