"""A lake in a bucket: the same promises, though nobody can be kept away from it."""

import asyncio
import signal
import subprocess
import sys
from functools import partial

import pytest
from msgspec.structs import replace

from penstock.errors import InvalidInput, InvalidState, StoreUnreachable
from penstock.model.store_types import Cursor
from penstock.pipeline.extraction.extract import extract, record_cursor
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.compact import CompactResult, compact
from penstock.pipeline.lake.files import is_data
from penstock.pipeline.lake.result_tables import Results
from penstock.pipeline.lake.s3 import S3LakeFiles
from penstock.pipeline.lake.schema import Table
from penstock.pipeline.reconcile.reconcile import has_right_digest, is_readable
from tests.cli.terminal import Terminal
from tests.pipeline.scenes import agrees, in_process, on, publish
from tests.pipeline.uploading import interrupt
from tests.servers.proxy import Link, Proxy


def bring(url: str, lake: str, batch: int = 1_000) -> int:
    return extract(in_process(), url, lake, batch=batch).batches


def names(lake: str, table: Table = "message") -> list[str]:
    return list(filter(is_data, lakes.find(lake).files.names(table)))


def test_extracts_and_compactions_keep_every_row_once(url: str, bucket: str) -> None:
    assert bring(url, bucket, batch=10) == 3
    publish(url, 5)
    assert (bring(url, bucket), bring(url, bucket)) == (1, 0)
    assert agrees(url, bucket)
    assert compact(in_process(), bucket) == CompactResult(4, 6, 2, 0)
    assert (agrees(url, bucket), len(names(bucket))) == (True, 5)
    assert compact(in_process(), bucket) == CompactResult(0, 0, 0, 4)
    assert (agrees(url, bucket), len(names(bucket))) == (True, 1)
    publish(url, 1)
    assert bring(url, bucket) == 1
    assert agrees(url, bucket)


def test_of_two_extracts_at_once_one_is_told(url: str, bucket: str) -> None:
    with pytest.raises(InvalidState, match=f"another process wrote batch 1 of lake '{bucket}'"):
        extract(interrupt(lambda: bring(url, bucket)), url, bucket)
    assert len(names(bucket)) == 2
    publish(url, 1)
    assert bring(url, bucket) == 1
    assert (agrees(url, bucket), len(names(bucket))) == (True, 2)


def test_an_extract_that_others_overtook_by_far_is_told(url: str, bucket: str) -> None:
    """Its batch was written, compacted and removed meanwhile: the name is free again."""

    def others() -> None:
        bring(url, bucket, batch=10)
        compact(in_process(), bucket)
        compact(in_process(), bucket)

    with pytest.raises(InvalidState, match="another process wrote batch 1"):
        extract(interrupt(others), url, bucket)
    publish(url, 1)
    assert bring(url, bucket) == 1
    assert agrees(url, bucket)


def test_two_compactions_at_once_lose_nothing(url: str, bucket: str) -> None:
    bring(url, bucket, batch=10)
    with pytest.raises(InvalidState, match="another process wrote batch 3"):
        compact(interrupt(lambda: compact(in_process(), bucket)), bucket)
    assert agrees(url, bucket)


def test_what_a_running_compaction_wrote_is_left_alone(url: str, bucket: str) -> None:
    bring(url, bucket, batch=10)

    def others() -> None:
        publish(url, 1)
        assert (bring(url, bucket), bring(url, bucket)) == (1, 0)

    assert compact(interrupt(others), bucket).batches == 3
    assert agrees(url, bucket)


def test_what_a_running_extract_wrote_is_left_alone(url: str, bucket: str) -> None:
    bring(url, bucket, batch=10)
    publish(url, 1)
    assert extract(interrupt(lambda: compact(in_process(), bucket)), url, bucket).batches == 1
    assert agrees(url, bucket)


def test_an_extract_that_is_killed_before_its_manifest_loses_and_doubles_nothing(
    url: str, bucket: str
) -> None:
    command = [sys.executable, "-m", "tests.pipeline.uploading", url, bucket]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    publish(url, 1)
    assert bring(url, bucket) == 1
    assert (agrees(url, bucket), len(names(bucket))) == (True, 2)
    # From now on nobody can write that batch any more.
    assert bring(url, bucket) == 0
    assert len(names(bucket)) == 1


def test_the_store_is_told_of_no_earlier_place(url: str, bucket: str) -> None:
    bring(url, bucket)
    late = partial(record_cursor, lakes.find(bucket), Cursor(0, 10, 10))
    on(url, lambda broker: late(broker.store))
    cursors = on(url, lambda broker: broker.store.cursors())
    assert [each.cursor for each in cursors.values()] == [Cursor(0, 30, 20)]


def test_a_store_that_was_told_of_an_earlier_batch_at_last_is_taken(url: str, bucket: str) -> None:
    bring(url, bucket, batch=10)
    place = lakes.find(bucket)
    early = place.manifests()[0].end
    on(url, lambda broker: broker.store.save_cursor(place.cursor_name, early))
    publish(url, 1)
    assert bring(url, bucket) == 1
    assert agrees(url, bucket)


class Careless(Proxy):
    """Before a server that would write over what is there."""

    async def pass_on(self, link: Link, what: str, chunk: bytes) -> None:
        await super().pass_on(link, what, chunk.replace(b"if-none-match", b"ix-none-match"))


@pytest.mark.anyio
async def test_a_server_that_writes_over_what_is_there_is_refused(
    url: str, bucket: str, s3_server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Careless(s3_server) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        for _ in range(2):
            with pytest.raises(InvalidInput, match="overwrites existing objects"):
                await asyncio.to_thread(bring, url, bucket)


def test_what_was_sent_again_because_its_answer_was_lost_is_ours(bucket: str) -> None:
    files = S3LakeFiles(bucket)
    assert [files.write_once("name", text) for text in (b"ours", b"ours", b"theirs")] == [
        True,
        True,
        False,
    ]


def test_files_that_are_gone_or_changed_are_damaged(url: str, bucket: str) -> None:
    bring(url, bucket, batch=10)
    place = lakes.find(bucket)
    whole, changed, gone, *_ = (part for each in place.manifests() for part in each.parts)
    with place.files.new(changed.path) as path:
        path.write_bytes(b"PAR1")
    place.files.remove([gone.path])
    parts = (whole, changed, gone)
    assert [has_right_digest(place.files, part) for part in parts] == [True, False, False]
    assert [is_readable(place.files, part.path) for part in parts] == [True, False, False]


def test_a_bucket_that_is_not_there_is_named(url: str, bucket: str, terminal: Terminal) -> None:
    missing = bucket.replace("/some", "-missing/some")
    with pytest.raises(StoreUnreachable, match=f"lake '{missing}': NoSuchBucket: "):
        bring(url, missing)
    said = terminal.call("pipeline", "report", "--lake", missing, code=3).err
    assert said.startswith(f"penstock: lake '{missing}': NoSuchBucket: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("where", "match"),
    [
        ("s3://key:word@bucket/x", "pass credentials in environment variables"),
        ("s3://", "lakes in s3:"),
        ("s3://a bucket/x", "lakes in s3://a bucket/x"),
    ],
)
def test_a_bucket_that_cannot_be_is_refused(where: str, match: str) -> None:
    with pytest.raises(InvalidInput, match=match) as refused:
        lakes.find(where)
    assert "word" not in str(refused.value)


def test_what_is_missing_to_reach_a_bucket_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(InvalidInput, match=r"obstore.*: install penstock\[s3\]"):
        lakes.find("s3://bucket/lake")


def test_a_server_that_is_away_is_named(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreUnreachable, match=f"lake '{bucket}': "):
        lakes.find(bucket)


def test_what_is_not_a_lake_is_left_alone(url: str, bucket: str) -> None:
    with pytest.raises(InvalidInput, match=f"no lake at '{bucket}'"):
        lakes.find(bucket)
    above, _, below = bucket.rpartition("/")
    bring(url, bucket)
    with pytest.raises(InvalidInput, match=f"is not a lake and not empty; it contains {below}"):
        bring(url, above)


def publish_results(url: str, bucket: str) -> Results:
    """Results of two runs that came to nothing."""
    bring(url, bucket)
    place = lakes.find(bucket)
    made = Results(result_tables.VERSION, place.label.id, 2, 1, 0, "", ())
    return result_tables.publish(place, made)


def test_results_that_others_overtook_by_far_are_told(url: str, bucket: str) -> None:
    late = replace(publish_results(url, bucket), number=1)
    with pytest.raises(InvalidState, match=f"another process wrote results 1 of lake '{bucket}'"):
        result_tables.publish(lakes.find(bucket), late)


def test_what_a_running_run_wrote_is_left_alone(url: str, bucket: str) -> None:
    publish_results(url, bucket)
    place = lakes.find(bucket)
    killed, running = (f"anomaly/run-{n:010}/day=2026-01-01/part-0.parquet" for n in (2, 3))
    for name in (killed, running):
        place.files.write_once(name, b"PAR1")
    result_tables.sweep(place)
    assert list(place.files.names("anomaly")) == [running]
