"""The private PostgreSQL does what tests ask of it, and leaves nothing behind."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.servers.keeper import ROOT
from tests.servers.postgres import GUARDED, PASSWORD, Postgres
from tests.servers.processes import at_work_in
from tests.servers.server import Unavailable

OWNER = """
import os, signal
from tests.servers.postgres import Postgres
server = Postgres()
print(server.directory, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def count(server: Postgres, url: str) -> str:
    return server.execute("SELECT count(*) FROM thing", url.rpartition("/")[2])


def fill(server: Postgres, url: str) -> None:
    statement = "CREATE TABLE thing AS SELECT generate_series(1, 3)"
    server.execute(statement, url.rpartition("/")[2])


def test_a_database_is_separate_from_the_others(postgres_server: Postgres) -> None:
    with postgres_server.database() as one, postgres_server.database() as other:
        fill(postgres_server, one)
        with pytest.raises(Unavailable, match='relation "thing" does not exist'):
            count(postgres_server, other)


def test_a_database_starts_with_what_its_template_has(postgres_server: Postgres) -> None:
    with postgres_server.database() as template:
        fill(postgres_server, template)
        with postgres_server.database(template.rpartition("/")[2]) as copy:
            assert count(postgres_server, copy) == "3"


def test_a_database_in_use_can_be_dropped(postgres_server: Postgres) -> None:
    with postgres_server.database() as url, psycopg.connect(url) as user:
        postgres_server.drop_database(url)
        with pytest.raises(psycopg.OperationalError):
            user.execute("SELECT 1")


def test_the_guarded_role_must_give_its_password(postgres_server: Postgres) -> None:
    url = postgres_server.url("postgres", GUARDED)
    with psycopg.connect(url, password=PASSWORD) as user:
        assert user.execute("SELECT current_user").fetchone() == (GUARDED,)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url, password="wrong")


@pytest.mark.parametrize("interrupt", [Postgres.restart, Postgres.kill, Postgres.kill_postmaster])
def test_what_was_committed_survives(
    postgres_server: Postgres, interrupt: Callable[[Postgres], None]
) -> None:
    with postgres_server.database() as url:
        fill(postgres_server, url)
        interrupt(postgres_server)
        if interrupt is not Postgres.restart:
            postgres_server.kill()
            postgres_server.start()
        assert count(postgres_server, url) == "3"


def test_a_backend_serves_each_client(postgres_server: Postgres) -> None:
    with postgres_server.database() as url, psycopg.connect(url) as user:
        assert user.info.backend_pid in postgres_server.backends


def test_settings_are_those_of_its_owner() -> None:
    with Postgres({"fsync": "off"}) as server:
        server.restart({"work_mem": "5MB"})
        shown = [server.execute(f"SHOW {name}") for name in ("fsync", "work_mem")]
    assert shown == ["off", "5MB"]


def test_a_closed_server_leaves_nothing() -> None:
    with Postgres() as server:
        pass
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
