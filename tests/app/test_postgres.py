"""What an app leaves on a PostgreSQL server: no session of its own, and those of others alone."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from penstock import Penstock
from penstock.app.task import AsyncTask
from penstock.model.message import State
from tests.cli.terminal import until
from tests.servers.postgres import Postgres

OURS = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE application_name = 'penstock' AND datname = current_database()"
)
FORKS = f"""
import gc, os, sys
import psycopg
from penstock import Penstock

app = Penstock(sys.argv[1])

@app.task
def send() -> None: ...

def sessions():
    with psycopg.connect(app.url) as connection:
        return set(connection.execute("{OURS}"))

send.enqueue()
before = sessions()
child = os.fork()
if child == 0:
    print(send.enqueue().id)
    if sys.argv[2] == "closes":
        app.close()
    del app, send
    gc.collect()
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
print(send.enqueue().id)
assert before and before <= sessions()
app.close()
"""


@pytest.fixture
def url(postgres_server: Postgres) -> Iterator[str]:
    with postgres_server.database() as url:
        yield url


@pytest.mark.parametrize("child", ["closes", "ends"])
def test_a_forked_child_enqueues_and_leaves_the_sessions_of_its_parent(
    url: str, child: str
) -> None:
    command = [sys.executable, "-c", FORKS, url, child]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout.split(), ran.stderr, ran.returncode) == (["2", "3"], "", 0)


async def use(task: AsyncTask[[], None]) -> None:
    assert await (await task.aenqueue()).astatus() is State.READY


def test_a_loop_that_ends_leaves_no_session_open(url: str) -> None:
    app = Penstock(url)

    @app.task
    async def send() -> None: ...

    with closing(psycopg.connect(url, autocommit=True)) as connection:
        for _ in range(3):
            asyncio.run(use(send))
            until(lambda: not connection.execute(OURS).fetchall())
