"""The pipeline where users run Spark, and what becomes of it when Spark is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event

import msgspec
import pyarrow.parquet as parquet
import pytest

from tests.cli.terminal import PENSTOCK, Terminal
from tests.extent import LONG
from tests.pipeline.cluster import HOME, connect, environment, standalone
from tests.pipeline.scenes import agrees, fed, on, publish

ROOT = Path(__file__).parents[2]
pytestmark = [
    LONG,
    pytest.mark.timeout(900),
]


def python(*words: object, code: int = 0) -> None:
    """In a group of its own, so that all of it may be killed at once."""
    command = [sys.executable, *map(str, words)]
    here = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(command, cwd=ROOT, env=here, check=False, start_new_session=True)
    assert ran.returncode == code


def penstock(terminal: Terminal, *words: object, code: int = 0) -> str:
    ran = subprocess.run(
        [PENSTOCK, *map(str, words)],
        cwd=terminal.folder, env=terminal.environment, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert ran.returncode == code, ran.stderr
    return ran.stderr if code else ran.stdout


def test_a_cluster_extracts_and_starts_slow_tasks_twice_without_doubles(
    terminal: Terminal, url: str, lake: Path, tmp_path: Path
) -> None:
    terminal.environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    with standalone(tmp_path) as master:
        words = ("pipeline", "extract", "--url", url, "--lake", lake, "--master", master)
        assert penstock(terminal, *words).startswith("added 30 messages and 20 history rows")
        assert agrees(url, lake)
        python("-m", "tests.pipeline.speculating", master, url, tmp_path)
    assert (tmp_path / "met").exists()
    bodies = sorted(int(each.body) for each in fed(url)[0][30:])
    assert bodies == list(range(600))


def test_a_server_of_spark_connect_extracts_balances_and_replays(
    terminal: Terminal, url: str, lake: Path, tmp_path: Path
) -> None:
    pytest.importorskip("grpc")
    with connect(tmp_path) as remote:
        places = ("--url", url, "--lake", lake, "--remote", remote)
        assert penstock(terminal, "pipeline", "extract", *places).startswith("added 30 messages")
        assert agrees(url, lake)
        assert penstock(terminal, "pipeline", "balance", *places).endswith("balanced\n")
        said = penstock(terminal, "replay", *places, "--where", "state = 'completed'")
        assert said.endswith("18 published, 0 already replayed\n")
        wrong = ("--remote", f"{remote}x", "--where", "true")
        refused = penstock(terminal, "replay", *places[:4], *wrong, code=1)
    assert refused.startswith("penstock: cannot connect to Spark at sc://localhost:")
    assert refused.count("\n") == 1
    assert "token" not in refused


def test_spark_submit_runs_the_example(url: str, lake: Path, tmp_path: Path) -> None:
    said = subprocess.run(
        [HOME / "bin" / "spark-submit", "--master", "local[1]", ROOT / "examples" / "pipeline.py",
         url, str(lake)],
        env=environment(tmp_path), text=True, capture_output=True, check=True,
    ).stdout  # fmt: skip
    assert agrees(url, lake)
    assert "completed" in said


def test_a_replay_that_is_killed_publishes_the_rest_the_next_time(
    terminal: Terminal, url: str, lake: Path
) -> None:
    penstock(terminal, "pipeline", "extract", "--url", url, "--lake", lake)
    words = ("replay", "--url", url, "--lake", lake, "--where", "state = 'completed'")
    command = [str(PENSTOCK), *map(str, words), "--rate", "1"]
    process = subprocess.Popen(command, cwd=terminal.folder, start_new_session=True)
    while len(fed(url)[0]) < 33:
        assert process.poll() is None
        Event().wait(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = len(fed(url)[0]) - 30
    assert 0 < before < 18
    assert penstock(terminal, *words).endswith(
        f"{18 - before} published, {before} already replayed\n"
    )
    parents = [each.meta.parent_id for each in fed(url)[0][30:]]
    assert len(parents) == len(set(parents)) == 18


def test_a_stream_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'store.db'}"
    publish(url, 35)
    python("-m", "tests.pipeline.streaming", url, tmp_path, 1, code=-signal.SIGKILL)
    python("-m", "tests.pipeline.streaming", url, tmp_path, -1)
    rows = [parquet.read_table(path) for path in (tmp_path / "out").glob("*/*.parquet")]
    assert sorted(id for each in rows for id in each.column("id").to_pylist()) == list(range(1, 36))
    census = on(url, lambda broker: broker.store.census())
    assert {each.place: each.count for each in census if each.count} == {"message": 35, "ended": 35}


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_storm_loses_and_doubles_nothing_in_the_lake(store: str) -> None:
    command = [sys.executable, "-m", "tests.pipeline.storm", store, "--kills", "3"]
    said = subprocess.run(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=False).stdout
    outcome = msgspec.json.decode(said)
    assert (outcome["lost"], outcome["doubled"], outcome["phantoms"]) == (0, 0, 0)
    assert outcome["committed"] > 100
    # The contrast: ids are not given in the order of commits, except where one writes at a time.
    assert (outcome["naive_lost"] > 0) == (store == "postgres")
