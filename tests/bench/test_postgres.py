"""The benchmark on PostgreSQL measures what it says."""

import os
from collections.abc import Iterator
from contextlib import suppress

import pytest

from bench.peers.peer import Failed, call
from bench.postgres import old_snapshot, usage
from bench.processes import Job, run_alone, run_together
from bench.references import postgres_loops
from bench.usage import use_one_core
from bench.workload import WARM_UP
from tests.conftest import start_server
from tests.servers.postgres import Postgres

WORK = "SELECT sum(number) FROM generate_series(1, 1000000) number"
OLD = (
    "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%' AND backend_xmin IS NOT NULL"
)


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[Postgres]:
    """One that nobody else is connected to: what it does is counted."""
    with start_server("PostgreSQL", Postgres) as server:
        yield server


@pytest.fixture
def url(postgres_server: Postgres) -> Iterator[str]:
    with postgres_server.database() as url:
        yield url


def rows(server: Postgres, url: str) -> int:
    return int(server.execute("SELECT count(*) FROM q", url.rpartition("/")[2]))


def test_the_hand_written_loop_drains_what_it_was_given(
    postgres_server: Postgres, url: str
) -> None:
    run_alone(postgres_loops.fill, url, 500 + WARM_UP)
    assert rows(postgres_server, url) == 500 + WARM_UP
    run_alone(postgres_loops.drain, url, 500)
    assert rows(postgres_server, url) == 0


def test_the_hand_written_loop_hears_of_each_row(url: str) -> None:
    run_alone(postgres_loops.fill, url, 0)
    sender = Job(postgres_loops.send, url, 5, 0.0)
    _, waits = run_together(sender, Job(postgres_loops.receive, url, 5))
    assert len(waits) == 5


def test_usage_counts_the_commits_and_the_log(postgres_server: Postgres, url: str) -> None:
    before = usage(postgres_server)
    run_alone(postgres_loops.fill, url, 3_000)
    used = usage(postgres_server).since(before)
    assert used.commits >= 3
    assert used.wal > 3_000 * 200


def test_usage_counts_the_time_of_backends_that_have_ended(postgres_server: Postgres) -> None:
    before = usage(postgres_server)
    postgres_server.execute(WORK)
    assert usage(postgres_server).since(before).seconds > 0


def test_one_core_is_for_the_server_and_for_this_process(postgres_server: Postgres) -> None:
    everybody = [0, *postgres_server.processes]
    own = os.sched_getaffinity(0)
    with use_one_core(postgres_server):
        assert {len(each) for each in affinities(everybody)} == {1}
    assert set(affinities(everybody)) == {frozenset(own)}


def affinities(pids: list[int]) -> list[frozenset[int]]:
    """Of those that are still there: a backend of before may be going."""
    found: list[frozenset[int]] = []
    for pid in pids:
        with suppress(ProcessLookupError):
            found.append(frozenset(os.sched_getaffinity(pid)))
    return found


def test_an_old_snapshot_is_held_as_long_as_asked(postgres_server: Postgres, url: str) -> None:
    with old_snapshot(url):
        assert postgres_server.execute(OLD) == "1"
    assert postgres_server.execute(OLD) == "0"


def test_a_peer_that_cannot_be_run_says_why() -> None:
    with pytest.raises(Failed, match="no-such-program is not installed"):
        call(["no-such-program"], {})
    with pytest.raises(Failed, match="no such option"):
        call(["sh", "-c", "echo no such option >&2; exit 1"], {})
