"""The audit log in the lake: every sealed entry once, with its hash."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from penstock.broker.audit import AuditLog
from penstock.broker.local import Broker
from penstock.model.documents import AuditEntry
from penstock.pipeline.extraction.extract import extract
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake.audit_log import list_files
from penstock.rules.audit_chain import ORIGIN, hash_entry
from tests.pipeline.scenes import in_process, on


def record(url: str, *verbs: str, seal: bool = True) -> None:
    async def work(broker: Broker) -> None:
        acts = [AuditEntry(subject="ada", tenant="t", verb=verb, target="x") for verb in verbs]
        await broker.store.record(acts)
        if seal:
            await AuditLog(broker.store).seal()

    on(url, work)


def read(lake: Path) -> list[dict[str, object]]:
    names = list_files(lakes.find(str(lake)))
    tables = [parquet.read_table(lake / name) for name in names]
    return pa.concat_tables(tables).to_pylist() if tables else []


def test_sealed_entries_are_copied_once_with_their_hashes(url: str, lake: Path) -> None:
    record(url, "create", "pause")
    assert extract(in_process(), url, str(lake)).acts == 2
    record(url, "delete")
    record(url, "late", seal=False)
    assert extract(in_process(), url, str(lake)).acts == 1
    assert extract(in_process(), url, str(lake)).acts == 0
    rows = read(lake)
    assert [(row["seal"], row["verb"]) for row in rows] == [
        (1, "create"), (2, "pause"), (3, "delete"),
    ]  # fmt: skip
    stored = on(url, lambda broker: broker.store.acts_after(0, 10))
    previous = ORIGIN
    for row, act in zip(rows, stored, strict=False):
        previous = hash_entry(previous, act)
        assert (row["id"], row["hash"], row["subject"]) == (act.id, previous, "ada")
