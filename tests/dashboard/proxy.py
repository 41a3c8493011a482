"""A proxy that serves another server below a path, as companies do."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR
from threading import Thread

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}
CHUNK_BYTES = 65_536


def make_handler(
    port: int, prefix: str, backends: set[HTTPConnection]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def forward(self) -> None:
            if not self.path.startswith(f"{prefix}/"):
                self.send_error(404)
                return
            length = int(self.headers.get("content-length") or 0)
            backend = HTTPConnection("127.0.0.1", port)
            backends.add(backend)
            try:
                self.answer(backend, length)
            finally:
                backends.discard(backend)
                backend.close()

        def answer(self, backend: HTTPConnection, length: int) -> None:
            backend.request(self.command, self.path.removeprefix(prefix), self.rfile.read(length),
                            dict(self.headers))  # fmt: skip
            answer = backend.getresponse()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.end_headers()
            # A page that is left ends its streams.
            with suppress(OSError):
                while chunk := answer.read1(CHUNK_BYTES):
                    self.wfile.write(chunk)
                    self.wfile.flush()
            answer.close()

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = forward  # noqa: N815

        def log_message(self, format: str, *words: object) -> None:
            """Says nothing."""

    return Handler


@contextmanager
def serve_below(port: int, prefix: str) -> Iterator[int]:
    """Yields the port of a proxy in front of another port."""
    backends: set[HTTPConnection] = set()
    with ThreadingHTTPServer(("127.0.0.1", 0), make_handler(port, prefix, backends)) as proxy:
        # Closing the proxy waits for its threads.
        proxy.daemon_threads = False
        thread = Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        yield proxy.server_port
        proxy.shutdown()
        thread.join()
        for backend in [*backends]:
            with suppress(OSError):
                backend.sock.shutdown(SHUT_RDWR)
