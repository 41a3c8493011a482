"""Other engines read a lake by its Delta logs, and see what the manifests say."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from threading import Barrier

import duckdb
import msgspec
import polars
import pytest
from msgspec.structs import replace

from penstock.errors import InvalidState
from penstock.model.store_types import Cursor
from penstock.pipeline.extraction.extract import extract
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.compact import compact
from penstock.pipeline.lake.delta import (
    Add,
    Commit,
    Snapshot,
    make_commit_lines,
    plan_batch_commits,
)
from penstock.pipeline.lake.delta_log import (
    CHECKPOINT_EVERY,
    KEPT_COMMITS,
    DeltaLog,
    make_result_fields,
    make_table_fields,
    open_log,
    sync_delta,
)
from penstock.pipeline.lake.files import DELTA_LOG
from penstock.pipeline.lake.lake import Lake
from penstock.pipeline.lake.manifest import LakePart, Manifest
from penstock.pipeline.lake.schema import MESSAGE, TABLES
from tests.extent import ALL
from tests.pipeline.engines import (
    count_named,
    count_rows,
    counts_agree,
    delta_files,
    files_agree,
    open_table,
)
from tests.pipeline.made_results import METRICS, publish_results
from tests.pipeline.older_lakes import copy_lake
from tests.pipeline.scenes import agrees, in_process, publish
from tests.pipeline.uploading import interrupt


@pytest.fixture(params=["directory", "bucket"])
def place(request: pytest.FixtureRequest, lake: Path) -> str:
    """Where a lake is to be."""
    found = lake if request.param == "directory" else request.getfixturevalue("bucket")
    return str(found)


def bring(url: str, lake: str | Path, batch: int = 1_000) -> int:
    return extract(in_process(), url, str(lake), batch=batch).batches


def message_log(lake: str | Path) -> DeltaLog:
    return open_log(lakes.find(str(lake)), "message", make_table_fields("message"), False)


def test_every_engine_counts_what_the_manifests_say(url: str, place: str) -> None:
    """After three extracts, two runs and compactions, which alone leave files behind."""
    # Engines read a bucket as they read a directory, which takes longer.
    agree = counts_agree if ALL or "://" not in place else files_agree
    for n in range(3):
        publish(url, 5 + n)
        bring(url, place)
        assert agree(place)
    for number, days in ((1, (1, 2)), (2, (2, 3))):
        publish_results(place, number, days)
        sync_delta(lakes.find(place))
        assert agree(place)
    for _ in range(2):
        compact(in_process(), place)
        assert agree(place)
    publish(url, 1)
    bring(url, place)
    assert counts_agree(place)
    counted = {table: count for table, count in count_named(place).items() if count}
    assert counted == {"message": 49, "history": 20, METRICS: 3}


def test_a_version_is_a_batch_and_time_travel_sees_it(url: str, place: str) -> None:
    bring(url, place, batch=10)
    compact(in_process(), place)
    tables = [open_table(place, "message", version) for version in range(5)]
    assert [table.to_pyarrow_table().num_rows for table in tables] == [0, 10, 20, 30, 30]
    assert [table.transaction_version(lakes.find(place).label.id) for table in tables] == [
        None, 1, 2, 3, 3,
    ]  # fmt: skip
    changes = [each["operation"] for each in reversed(tables[-1].history())]
    assert changes == ["CREATE TABLE", "WRITE", "WRITE", "WRITE", "OPTIMIZE"]


def test_every_value_is_read_as_it_was_written(url: str, lake: Path) -> None:
    bring(url, lake)
    (path,) = delta_files(str(lake), "message")
    told = polars.scan_delta(f"{lake}/message").sort("id").collect()
    plain = polars.read_parquet(lake / path).sort("id")
    assert told.equals(plain)
    assert told.columns == MESSAGE.names


def test_a_driver_killed_before_its_commit_leaves_it_to_the_next(url: str, lake: Path) -> None:
    bring(url, lake)
    publish(url, 5)
    command = [sys.executable, "-m", "tests.pipeline.syncing", "die", url, str(lake)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert (count_named(str(lake))["message"], files_agree(str(lake))) == (35, False)
    assert bring(url, lake) == 0
    assert files_agree(str(lake))
    assert counts_agree(str(lake))


def test_processes_that_race_write_each_batch_once(url: str, lake: Path) -> None:
    bring(url, lake, batch=2)
    for table in TABLES:
        shutil.rmtree(lake / table / DELTA_LOG)
    command = [sys.executable, "-m", "tests.pipeline.syncing", "race", str(lake)]
    racers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    assert [racer.communicate("go\n") and racer.returncode for racer in racers] == [0, 0]
    assert open_table(str(lake), "message").version() == 15
    assert counts_agree(str(lake))


def test_writers_of_a_bucket_that_race_write_each_batch_once(url: str, bucket: str) -> None:
    bring(url, bucket, batch=3)
    files = lakes.find(bucket).files
    files.remove([name for name in files.names() if f"/{DELTA_LOG}/" in name])
    barrier = Barrier(3)

    def race(_: int) -> None:
        found = lakes.find(bucket)
        barrier.wait(60)
        sync_delta(found)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(race, range(3)))
    assert open_table(bucket, "message").version() == 10
    assert counts_agree(bucket)


def test_a_compaction_beside_an_extract_keeps_the_logs_right(url: str, bucket: str) -> None:
    bring(url, bucket, batch=10)
    publish(url, 1)
    extract(interrupt(lambda: compact(in_process(), bucket)), url, bucket)
    assert counts_agree(bucket)
    publish(url, 1)
    compact(interrupt(lambda: bring(url, bucket)), bucket)
    assert counts_agree(bucket)
    assert agrees(url, bucket)


def test_a_version_is_written_once(url: str, place: str) -> None:
    bring(url, place)
    log = message_log(place)
    held = log.read()
    assert log.write(held, Commit("WRITE", 7)) is not None
    assert log.write(held, Commit("WRITE", 8)) is None
    assert log.read().number == 7


class SlowLake(Lake):
    """Something happens after the manifests were read for the first time."""

    def __init__(self, place: str, happens: Callable[[], object]) -> None:
        found = lakes.find(place)
        super().__init__(found.files, found.label)
        self.happens: Callable[[], object] | None = happens

    def manifests(self) -> list[Manifest]:
        found = super().manifests()
        happens, self.happens = self.happens, None
        if happens is not None:
            happens()
        return found


def test_what_others_commit_while_the_manifests_are_read_is_not_undone(
    url: str, place: str
) -> None:
    bring(url, place, batch=10)
    sync_delta(SlowLake(place, lambda: compact(in_process(), place)))
    assert files_agree(place)
    publish(url, 1)

    def happens() -> None:
        bring(url, place)
        compact(in_process(), place)

    sync_delta(SlowLake(place, happens))
    assert files_agree(place)
    assert counts_agree(place)


def test_a_lake_without_logs_gets_them_with_the_next_extract(tmp_path: Path) -> None:
    url, lake = copy_lake(tmp_path)
    publish(url, 1)
    bring(url, lake)
    rows = open_table(str(lake), "message").to_pyarrow_table().sort_by("id").to_pylist()
    assert [(row["id"], row["run_at"]) for row in rows] == [(id, None) for id in range(1, 8)]
    assert open_table(str(lake), "message").version() == 3
    assert counts_agree(str(lake))


def test_a_filter_on_any_column_finds_its_rows(url: str, lake: Path) -> None:
    """Also if statistics of files tell nothing of it, and if a checkpoint stands for them."""
    bring(url, lake, batch=10)
    fill_log(lake, CHECKPOINT_EVERY)
    with duckdb.connect() as connection:
        for table in TABLES:
            connection.register(table, open_table(str(lake), table).to_pyarrow_dataset())
        found = connection.execute(
            "SELECT id, error FROM history JOIN message USING (id)"
            " WHERE state = 'failed' AND type = 'message' AND run_at IS NULL AND hops = 0"
        ).fetchall()
    assert found == [(1, "broken")]
    wanted = polars.col("type") == "message", polars.col("id") > 15, polars.col("run_at").is_null()
    assert polars.scan_delta(f"{lake}/message").filter(*wanted).collect().height == 15


def manifest(first: int, last: int, *names: str) -> Manifest:
    parts = tuple(LakePart("message", f"message/{name}", 1, 1, "") for name in names)
    return Manifest(2, "lake", first, last, Cursor(), Cursor(), "", parts)


def name(first: int, last: int) -> str:
    return f"batch={first:010}-{last:010}/part.parquet"


def snapshot(number: int, *names: str) -> Snapshot:
    return Snapshot(number, None, number, {each: Add(each, {}, 1, 0, True) for each in names})


ONE, TWO, BOTH = f"batch={1:010}/part.parquet", f"batch={2:010}/part.parquet", name(1, 2)


@pytest.mark.parametrize(
    ("held", "chain", "commits"),
    [
        (snapshot(0), [], []),
        (snapshot(1, ONE), [], []),
        (snapshot(2, ONE, TWO), [manifest(1, 1, ONE)], []),
        (snapshot(1, ONE), [manifest(1, 1, ONE)], []),
        (
            snapshot(0),
            [manifest(1, 1, ONE), manifest(2, 2, TWO)],
            [(1, [ONE], [], True), (2, [TWO], [], True)],
        ),
        (snapshot(2, ONE, TWO), [manifest(1, 2, BOTH)], [(2, [BOTH], [ONE, TWO], False)]),
        (snapshot(2, ONE, TWO), [manifest(1, 2, ONE, TWO)], []),
        # Compacted before the log told of batch 2: in one step, so that no row is seen twice.
        (snapshot(1, ONE), [manifest(1, 2, BOTH)], [(2, [BOTH], [ONE], True)]),
        # A file that another writer put there is not of the lake.
        (snapshot(1, ONE, "stray.parquet"), [manifest(1, 1, ONE)],
         [(1, [], ["stray.parquet"], False)]),
    ],
)  # fmt: skip
def test_a_log_is_brought_up_to_the_manifests(
    held: Snapshot, chain: list[Manifest], commits: list[tuple[int, list[str], list[str], bool]]
) -> None:
    found = [
        (each.number, [add.path for add in each.adds], list(each.removes), each.data_change)
        for each in plan_batch_commits(held, chain, "message")
    ]
    assert found == commits


def fill_log(lake: Path, until: int) -> Snapshot:
    """Commits that tell nothing new, up to this version."""
    log = message_log(lake)
    held = log.read()
    while held.version < until:
        written = log.write(held, Commit("WRITE", held.number))
        assert written is not None
        held = written
    return held


def test_a_checkpoint_stands_for_the_commits_before_it(url: str, lake: Path) -> None:
    bring(url, lake, batch=10)
    compact(in_process(), str(lake))
    held = fill_log(lake, CHECKPOINT_EVERY + 1)
    log = lake / "message" / DELTA_LOG
    for version in range(CHECKPOINT_EVERY):
        (log / f"{version:020}.json").unlink()
    assert message_log(lake).read_checkpoint(CHECKPOINT_EVERY).number == 3
    read = message_log(lake).read()
    assert (read.version, read.number, read.metadata) == (held.version, 3, held.metadata)
    assert (read.files.keys(), read.removed.keys()) == (held.files.keys(), held.removed.keys())
    assert msgspec.json.decode((log / "_last_checkpoint").read_bytes())["version"] == 100
    assert counts_agree(str(lake))
    publish(url, 1)
    bring(url, lake)
    assert open_table(str(lake), "message").version() == CHECKPOINT_EVERY + 2
    assert counts_agree(str(lake))


def test_results_of_a_checkpoint_keep_their_days(url: str, lake: Path) -> None:
    bring(url, lake)
    publish_results(str(lake), 1, (1, 2))
    sync_delta(lakes.find(str(lake)))
    log = open_log(lakes.find(str(lake)), METRICS, make_result_fields(METRICS), True)
    log.write_checkpoint(log.read())
    assert log.read().files == log.read_checkpoint(1).files
    (lake / log.make_commit_name(0)).unlink()
    (lake / log.make_commit_name(1)).unlink()
    days = open_table(str(lake), METRICS).to_pyarrow_table().column("day").to_pylist()
    assert sorted(days) == [date(2026, 1, 1), date(2026, 1, 2)]


def test_commits_long_before_a_checkpoint_are_removed(url: str, lake: Path) -> None:
    bring(url, lake)
    log = message_log(lake)
    held = log.read()
    log.write_checkpoint(replace(held, version=KEPT_COMMITS + 1))
    assert sorted(log.list_versions()[0]) == [1]


def test_the_newest_run_takes_the_place_of_the_one_before(url: str, lake: Path) -> None:
    bring(url, lake)
    for number, days in ((1, (1, 2)), (2, (2, 3))):
        publish_results(str(lake), number, days)
        sync_delta(lakes.find(str(lake)))
    whole = polars.scan_delta(f"{lake}/{METRICS}")
    found = whole.sort("day").select("day", "published").collect().rows()
    assert found == [(date(2026, 1, 1), 1), (date(2026, 1, 2), 2), (date(2026, 1, 3), 2)]
    second = whole.filter(polars.col("day") == date(2026, 1, 2)).collect()
    assert second["published"].to_list() == [2]
    table = open_table(str(lake), METRICS)
    assert (table.version(), table.metadata().partition_columns) == (2, ["day"])


def test_results_of_no_use_any_more_leave_an_empty_table(url: str, lake: Path) -> None:
    bring(url, lake)
    publish_results(str(lake), 1, (1,))
    sync_delta(lakes.find(str(lake)))
    shutil.rmtree(lake / "_results")
    sync_delta(lakes.find(str(lake)))
    result_tables.sweep(lakes.find(str(lake)))
    assert (lake / METRICS / DELTA_LOG).is_dir()
    assert {*count_rows(str(lake), METRICS).values()} == {0}
    publish_results(str(lake), 1, (2, 3))
    sync_delta(lakes.find(str(lake)))
    assert {*count_rows(str(lake), METRICS).values()} == {2}


def test_columns_that_a_newer_version_added_are_told_with_its_first_commit(
    url: str, lake: Path
) -> None:
    bring(url, lake, batch=10)
    log = message_log(lake)
    held = log.read()
    older = open_log(
        lakes.find(str(lake)), "message", make_table_fields("message")[:-2], False
    ).metadata
    lines = make_commit_lines(Commit("WRITE", 3), held, older, "lake", 0)
    assert log.write_lines(held, lines) is not None
    assert "run_at" not in open_table(str(lake), "message").to_pyarrow_table().column_names
    publish(url, 1)
    bring(url, lake)
    assert open_table(str(lake), "message").to_pyarrow_table().column_names == MESSAGE.names


@pytest.mark.parametrize("text", [None, b"", b'{"add"', b'{"add":{"path":1}}\n'])
def test_a_torn_log_is_named(url: str, lake: Path, text: bytes | None) -> None:
    bring(url, lake, batch=10)
    path = lake / "message" / DELTA_LOG / f"{1:020}.json"
    if text is None:
        path.unlink()
    else:
        path.write_bytes(text)
    with pytest.raises(InvalidState, match=r"message/_delta_log is damaged or has a gap; delete"):
        bring(url, lake)
    shutil.rmtree(path.parent)
    bring(url, lake)
    assert counts_agree(str(lake))
