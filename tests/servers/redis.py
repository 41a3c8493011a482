"""A private Redis: a directory and a port of its own, gone with its owner."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.servers.server import Unavailable
from tests.servers.spawned import Spawned

SETTINGS = {
    "bind": "127.0.0.1",
    "daemonize": "no",
    "appendonly": "yes",
    "appendfsync": "always",
    "save": '""',
    "maxmemory-policy": "noeviction",
}


class Redis(Spawned):
    """Keeps what it was told, also when it is killed."""

    ready = "Ready to accept connections"

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, parent: Path | None = None
    ) -> None:
        self.program = find("redis-server")
        super().__init__("redis", settings or {}, parent=parent)

    def create(self, settings: Mapping[str, str]) -> None:
        self.data.mkdir()
        if self.user is not None:
            shutil.chown(self.data, self.user)
        self.configure({**SETTINGS, "dir": str(self.data), **settings})
        self.start_on_free_port()

    def configure(self, settings: Mapping[str, str]) -> None:
        with (self.directory / "settings").open("a") as file:
            file.writelines(f"{name} {value}\n" for name, value in settings.items())

    def command(self) -> list[str]:
        return [self.program, str(self.directory / "settings")]

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of an empty store: one at a time."""
        with self.connect() as outside:
            outside.flushall()
            yield self.url()
            outside.flushall()

    def connect(self, database: int = 0) -> redis.Redis:
        return redis.Redis(host="127.0.0.1", port=self.port, db=database)


def find(program: str) -> str:
    if found := shutil.which(program):
        return found
    raise Unavailable(f"{program} is not on the path")
