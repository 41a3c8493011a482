"""The private MariaDB does what tests ask of it, and leaves nothing behind."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.servers.keeper import ROOT
from tests.servers.mariadb import GUARDED, PASSWORD, SMALL, MariaDB
from tests.servers.processes import at_work_in

OWNER = """
import os, signal
from tests.servers.mariadb import MariaDB
server = MariaDB()
print(server.directory, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("interrupt", [MariaDB.restart, MariaDB.kill])
def test_what_was_committed_survives(
    mariadb_server: MariaDB, interrupt: Callable[[MariaDB], None]
) -> None:
    with mariadb_server.database() as url:
        name = url.rpartition("/")[2]
        mariadb_server.execute("CREATE TABLE thing AS SELECT seq FROM seq_1_to_3", name)
        interrupt(mariadb_server)
        if interrupt is MariaDB.kill:
            mariadb_server.start()
        assert mariadb_server.execute("SELECT count(*) FROM thing", name) == [(3,)]


def test_the_guarded_user_must_give_its_password(mariadb_server: MariaDB) -> None:
    place: dict[str, Any] = {"host": "127.0.0.1", "port": mariadb_server.port, "user": GUARDED}
    pymysql.connect(**place, password=PASSWORD).close()
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        pymysql.connect(**place, password="wrong")


def test_settings_are_those_of_its_owner_and_a_closed_server_leaves_nothing() -> None:
    with MariaDB(SMALL | {"innodb-flush-log-at-trx-commit": "2"}) as server:
        server.restart({"max-connections": "17"})
        shown = server.execute("SELECT @@innodb_flush_log_at_trx_commit, @@max_connections")
    assert shown == [(2, 17)]
    assert not server.running
    assert not server.directory.exists()


def test_the_server_of_a_killed_owner_ends_and_leaves_nothing() -> None:
    # Returns when nobody can write to the pipe any more: the keeper has it too.
    owner = subprocess.run(
        [sys.executable, "-c", OWNER], cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True
    )
    directory = Path(owner.stdout.strip())
    assert owner.returncode == -signal.SIGKILL
    assert list(at_work_in(directory / "data")) == []
    assert not directory.exists()
