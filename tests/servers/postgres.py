"""A private PostgreSQL: a directory, a port and databases of its own, gone with its owner."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.servers.processes import kill, title
from tests.servers.server import Server, Unavailable

INSTALLED = Path("/usr/lib/postgresql")

# Kept in the directory of the server: a killed one leaves nothing in shared memory.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "dynamic_shared_memory_type": "mmap",
}
# Enough for tests; a benchmark is measured with what PostgreSQL comes with.
SMALL = {"shared_buffers": "32MB", "max_wal_size": "128MB", "max_connections": "200"}

GUARDED, PASSWORD = "guarded", "correct horse"
ACCESS = f"""\
host all {GUARDED} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""


class Postgres(Server):
    """The superuser is `penstock`; `guarded` must give a password."""

    def __init__(self, settings: Mapping[str, str] = SMALL, *, parent: Path | None = None) -> None:
        self.programs = find_programs()
        super().__init__("postgres", settings, parent=parent)

    def create(self, settings: Mapping[str, str]) -> None:
        self.run("initdb", "-D", self.data, "-U", "penstock", "-A", "trust", "-E", "UTF8",
                 "--locale=C", "--no-sync")  # fmt: skip
        (self.data / "pg_hba.conf").write_text(ACCESS)
        self.configure({**SETTINGS, **settings})
        self.start_on_free_port()
        self.execute(f"CREATE ROLE {GUARDED} LOGIN PASSWORD '{PASSWORD}'")

    def configure(self, settings: Mapping[str, str]) -> None:
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())

    def start(self) -> None:
        # A killed postmaster stays listed until it is reaped, and its file would keep us out.
        if not self.running:
            (self.data / "postmaster.pid").unlink(missing_ok=True)
        self.control("start", "--log", self.directory / "log")

    def stop(self, mode: str = "fast") -> None:
        """Mode `immediate` is a crash that tells its children."""
        self.control("stop", "--mode", mode)

    def kill_postmaster(self) -> None:
        """Only the first process. Backends notice when they next wait; kill() before start()."""
        kill(self.postmaster)

    def close(self) -> None:
        if self.running:
            self.stop("immediate")
        self.keeper.end()

    def url(self, database: str, user: str = "penstock") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def create_database(self, template: str = "template1") -> str:
        """The URL of a new database. A template must have no connections."""
        name = next(self.names)
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Whoever is connected is thrown out."""
        self.execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]} WITH (FORCE)")

    @contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        url = self.create_database(template)
        yield url
        self.drop_database(url)

    def execute(self, statement: str, database: str = "postgres") -> str:
        """The rows as psql prints them, one a line, columns divided by |."""
        return self.run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statement,
                        self.url(database)).strip()  # fmt: skip

    @property
    def postmaster(self) -> int:
        return int((self.data / "postmaster.pid").read_text().split()[0])

    @property
    def backends(self) -> list[int]:
        """Those that serve a client."""
        return [pid for pid in self.processes if " 127.0.0.1(" in title(pid)]

    def control(self, *words: object) -> None:
        self.run("pg_ctl", "-D", self.data, "-s", "-w", *words)

    def run(self, program: str | Path, *words: object) -> str:
        return super().run(self.programs / program, *words)


def find_programs() -> Path:
    """The directory of initdb: on the path, or else the newest that Debian installed."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    versions = sorted(INSTALLED.glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if not versions:
        raise Unavailable("initdb is not on the path and not in /usr/lib/postgresql")
    return versions[-1].parent
