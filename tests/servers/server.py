"""What every private server has: a directory, a port and databases of its own, gone with it."""

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.keeper import Keeper
from tests.servers.places import free_port, new_directory, server_user
from tests.servers.processes import at_work_in, kill_all_in

ATTEMPTS = 5


class Unavailable(Exception):
    """The server is not installed, or does not start here."""


class Server(ABC):
    """Runs until it is closed."""

    port: int

    def __init__(
        self, owner: str, settings: Mapping[str, str], *, parent: Path | None = None
    ) -> None:
        self.user = server_user(owner)
        self.directory = new_directory(parent, self.user)
        self.data = self.directory / "data"
        self.keeper = Keeper(self.directory, self.data)
        self.names = (f"database_{number}" for number in count(1))
        try:
            self.create(settings)
        except BaseException:
            self.keeper.end()
            raise

    @abstractmethod
    def create(self, settings: Mapping[str, str]) -> None:
        """Fills the data directory and starts."""

    @abstractmethod
    def configure(self, settings: Mapping[str, str]) -> None:
        """Takes effect at the next start."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    def start_on_free_port(self) -> None:
        """Somebody may take the port before we do."""
        for attempt in range(ATTEMPTS):
            self.port = free_port()
            self.configure({"port": str(self.port)})
            try:
                return self.start()
            except Unavailable:
                if attempt + 1 == ATTEMPTS:
                    raise

    def restart(self, settings: Mapping[str, str] | None = None) -> None:
        self.stop()
        self.configure(settings or {})
        self.start()

    def kill(self) -> None:
        """Every process at once, as when the machine stops."""
        kill_all_in(self.data)

    def close(self) -> None:
        self.kill()
        self.keeper.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def running(self) -> bool:
        return any(True for _ in at_work_in(self.data))

    @property
    def processes(self) -> list[int]:
        return sorted(at_work_in(self.data))

    @property
    def log(self) -> str:
        file = self.directory / "log"
        return file.read_text(errors="replace") if file.exists() else ""

    def run(self, program: str | Path, *words: object) -> str:
        result = subprocess.run(
            [str(program), *map(str, words)],
            check=False,
            cwd=self.directory,
            # What the developer has set for a client is not meant for this server.
            env={"PATH": PATH, "LC_ALL": "C"},
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
            capture_output=True,
            text=True,
        )
        if result.returncode:
            raise Unavailable(f"{program} failed: {result.stderr}{self.log[-2_000:]}")
        return result.stdout


PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
