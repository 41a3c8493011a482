"""Clients that ask a server for what open pages of the dashboard ask for."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from time import monotonic

# As in web/src: the overview after a change, at most twice per second, and the rest by time.
MIN_INTERVAL_S = 0.5
BY_TIME = {
    "/v1/overview/hour": 5.0,
    "/v1/failures/causes": 15.0,
    "/v1/anomalies?state=open&limit=100": 15.0,
}
OVERVIEW = "/v1/overview?limit=100"
TIMEOUT_S = 10.0


class Tab(threading.Thread):
    """A page that shows the overview. Each has a stream of changes, as in a browser of its own."""

    def __init__(self, port: int, stopped: threading.Event) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.stopped = stopped
        self.changed = threading.Event()
        self.etag = ""
        self.due = dict.fromkeys(BY_TIME, 0.0)

    def run(self) -> None:
        threading.Thread(target=self.listen, daemon=True).start()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        while not self.stopped.wait(MIN_INTERVAL_S):
            with suppress(OSError, HTTPException):
                self.ask(connection)
        connection.close()

    def ask(self, connection: HTTPConnection) -> None:
        if self.changed.is_set():
            self.changed.clear()
            connection.request("GET", OVERVIEW, headers={"If-None-Match": self.etag})
            answer = connection.getresponse()
            answer.read()
            self.etag = answer.headers.get("etag", "")
        now = monotonic()
        for path, interval in BY_TIME.items():
            if now >= self.due[path]:
                self.due[path] = now + interval
                connection.request("GET", path)
                connection.getresponse().read()

    def listen(self) -> None:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        with suppress(OSError, HTTPException, ValueError):
            connection.request("GET", "/v1/changes")
            stream = connection.getresponse()
            while not self.stopped.is_set():
                line = stream.readline()
                if line.startswith(b"data:") and "topics" in json.loads(line[5:]):
                    self.changed.set()
        connection.close()


@contextmanager
def open_tabs(port: int, count: int) -> Iterator[None]:
    """Opens so many tabs in another process: they must not share an interpreter with the work."""
    command = [sys.executable, "-m", "bench.dashboard_tabs", str(port), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            process.terminate()


if __name__ == "__main__":
    stopped = threading.Event()
    for _ in range(int(sys.argv[2])):
        Tab(int(sys.argv[1]), stopped).start()
    stopped.wait()
