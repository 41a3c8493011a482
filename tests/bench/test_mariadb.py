"""The benchmark on MariaDB measures what it says."""

from collections.abc import Iterator

import pytest

from bench.mariadb import usage
from bench.processes import Job, run_alone, run_together
from bench.references import mariadb_loops
from bench.workload import WARM_UP
from tests.servers.mariadb import MariaDB


@pytest.fixture
def url(mariadb_server: MariaDB) -> Iterator[str]:
    with mariadb_server.database() as url:
        yield url


def rows(server: MariaDB, url: str) -> list[object]:
    """In each table of the loop."""
    counts = [f"(SELECT count(*) FROM {table})" for table in ("ready", "lease", "done")]
    (found,) = server.execute(f"SELECT {', '.join(counts)}", url.rpartition("/")[2])
    return list(found)


def test_the_hand_written_loop_drains_what_it_was_given(mariadb_server: MariaDB, url: str) -> None:
    run_alone(mariadb_loops.fill, url, 500 + WARM_UP)
    assert rows(mariadb_server, url) == [500 + WARM_UP, 0, 0]
    run_alone(mariadb_loops.drain, url, 500)
    assert rows(mariadb_server, url) == [0, 0, 500 + WARM_UP]


def test_the_hand_written_loop_finds_each_row(url: str) -> None:
    run_alone(mariadb_loops.fill, url, 0)
    sender = Job(mariadb_loops.send, url, 5, 0.0)
    _, waits = run_together(sender, Job(mariadb_loops.receive, url, 5))
    assert len(waits) == 5


def test_usage_counts_the_commits_and_the_log(mariadb_server: MariaDB, url: str) -> None:
    before = usage(mariadb_server)
    run_alone(mariadb_loops.fill, url, 3_000)
    used = usage(mariadb_server).since(before)
    assert used.commits >= 3
    assert used.wal > 3_000 * 200
