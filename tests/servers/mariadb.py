"""A private MariaDB: a directory, a port and databases of its own, gone with its owner."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pymysql
from pymysql.constants import CLIENT

from tests.servers.server import Unavailable
from tests.servers.spawned import Spawned

SETTINGS = {
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "ON",
    "skip-log-bin": "ON",
    # Nothing is kept outside its directory.
    "secure-file-priv": "",
}
# Enough for tests; a benchmark is measured with what MariaDB comes with.
SMALL = {
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "32M",
    "max-connections": "200",
    "performance-schema": "OFF",
}
GUARDED, PASSWORD = "guarded", "correct horse"


class MariaDB(Spawned):
    """The superuser is `penstock`; `guarded` must give a password."""

    ready = "ready for connections"

    def __init__(self, settings: Mapping[str, str] = SMALL, *, parent: Path | None = None) -> None:
        self.program = find("mariadbd")
        super().__init__("mysql", settings, parent=parent)

    def create(self, settings: Mapping[str, str]) -> None:
        self.run(
            find("mariadb-install-db"), "--no-defaults", f"--datadir={self.data}",
            "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
            "--innodb-flush-log-at-trx-commit=0",
        )  # fmt: skip
        self.configure({**SETTINGS, **settings})
        self.start_on_free_port()
        for user, password in (("penstock", ""), (GUARDED, PASSWORD)):
            self.execute(
                f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY '{password}';"
                f" GRANT ALL ON *.* TO {user}@'127.0.0.1' WITH GRANT OPTION",
                user="root",
            )

    def configure(self, settings: Mapping[str, str]) -> None:
        with (self.directory / "settings").open("a") as file:
            file.write("[mariadbd]\n")
            file.writelines(f"{name} = {value}\n" for name, value in settings.items())

    def command(self) -> list[str]:
        return [
            self.program, f"--defaults-file={self.directory / 'settings'}",
            f"--datadir={self.data}", f"--socket={self.directory / 'socket'}",
            f"--pid-file={self.directory / 'pid'}",
        ]  # fmt: skip

    def url(self, database: str, user: str = "penstock", password: str = "") -> str:
        word = f":{password}" if password else ""
        return f"mariadb://{user}{word}@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """The URL of a new database."""
        name = next(self.names)
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        self.execute(f"DROP DATABASE IF EXISTS {url.rpartition('/')[2]}")

    @contextmanager
    def database(self) -> Iterator[str]:
        url = self.create_database()
        yield url
        self.drop_database(url)

    def connect(self, database: str | None = None, user: str = "penstock") -> pymysql.Connection:
        # To ask for TLS, if only to be told that there is none, takes it 60 ms.
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=user, database=database, autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS, ssl_disabled=True,
        )  # fmt: skip

    def execute(
        self, statement: str, database: str | None = None, user: str = "penstock"
    ) -> list[tuple[object, ...]]:
        """The rows of the last of the statements."""
        with self.connect(database, user) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            while cursor.nextset():
                pass
            return list(cursor.fetchall())


def place(url: str) -> dict[str, Any]:
    """Where a URL of ours is, as drivers are told."""
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "database": parts.path.removeprefix("/"),
    }


def find(program: str) -> str:
    if found := shutil.which(program) or shutil.which(program, path="/usr/sbin"):
        return found
    raise Unavailable(f"{program} is not on the path")
