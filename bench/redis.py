"""Benchmarks Redis: a private server with appendfsync always."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from bench.references import redis_loops
from bench.subjects import Peer, Reference
from tests.servers import redis


class Redis:
    """Gives each run its own database. The server stops with this process."""

    name = "redis"
    reference: Reference = redis_loops
    peer: Peer | None = None

    def __init__(self, directory: Path) -> None:
        self.server = redis.Redis(parent=directory)
        self.databases = cycle(range(16))
        with self.server.connect() as outside:
            version = outside.info("server")["redis_version"]
        self.terms = (
            f"Redis {version} with appendonly yes and appendfsync always, on both sides."
            f" Files in {directory.name}."
        )

    @contextmanager
    def fresh(self) -> Iterator[str]:
        database = next(self.databases)
        with self.server.connect(database) as outside:
            outside.flushdb()
            yield self.server.url(database)
            outside.flushdb()
