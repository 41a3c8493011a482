"""What the pipeline says of a history is what loops over its rows say, however it was run."""

import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession

from penstock.errors import InvalidState
from penstock.model.message import State, Verb
from penstock.pipeline.analytics.job import analyze
from penstock.pipeline.extraction.extract import extract
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.result_tables import RESULT_TABLES, Results, ResultTable
from penstock.pipeline.report.data import read_report_data
from penstock.pipeline.run import run
from penstock.testing.simulation import START
from tests.cli.terminal import Terminal
from tests.extent import ALL, LONG
from tests.pipeline.analysed import CHANGES, RULES
from tests.pipeline.scenes import fed, in_process, on, publish
from tests.pipeline.weeks import FAILED, HOUR, Oracle, hour_of, live, micros, near

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "analytics.md"
# Four runs of Spark, whatever else the machine does.
pytestmark = pytest.mark.timeout(600)
# A night's work, across midnight and with an hour in which nothing happens. No hour is complete
# when it is first looked at.
NIGHT = (12, 20, 0, 16, 9)
LATE = START + 22 * HOUR + HOUR // 2
COUNTED = (
    "published", "attempts", "completed", "failures", "retried", "lost", "failed", "dead",
    "expired", "cancelled", "redriven", "handed_back",
)  # fmt: skip


def newest(lake: Path) -> Results:
    found = result_tables.read_newest(lakes.find(str(lake)))
    assert found is not None
    return found


def rows_of(lake: Path, table: ResultTable) -> list[dict[str, Any]]:
    files = newest(lake).list_files(table)
    return [row for each in files for row in parquet.read_table(lake / each.path).to_pylist()]


def everything(lake: Path) -> dict[str, list[str]]:
    """Every row of every table, in an order of its own."""
    return {table: sorted(map(repr, rows_of(lake, table))) for table in RESULT_TABLES}


class Night:
    """One night, analysed twice while it goes on, and then by another lake at once."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'night.db'}"
        self.lake, self.whole = folder / "lake", folder / "whole"
        for first, last in ((0, 2), (2, 5)):
            live(self.url, NIGHT[first:last], LATE + first * HOUR)
            self.ran = run(spark, self.url, str(self.lake), RULES)
        analyze(spark, self.url, str(extract_lake(spark, self.url, self.whole)), RULES)
        self.messages, self.history = fed(self.url)
        self.oracle = Oracle(self.messages, self.history)


def extract_lake(spark: SparkSession, url: str, lake: Path) -> Path:
    extract(spark, url, str(lake))
    return lake


@pytest.fixture(scope="module")
def night(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Night:
    if not ALL:
        pytest.skip("takes long; ./dev test --all")
    return Night(spark, tmp_path_factory.mktemp("night"))


def test_attempts_know_how_long_they_waited_and_ran(night: Night) -> None:
    found = {row["position"]: row for row in rows_of(night.lake, "attempt")}
    assert found.keys() == {row.position for row in night.history}
    for row in night.oracle.worked():
        one = found[row.position]
        waited = max((row.claimed_at or 0) - night.oracle.ready_at(row), 0) / 1_000_000
        assert (one["wait"], one["run"]) == (waited, (row.at - (row.claimed_at or 0)) / 1_000_000)
        assert one["type"] == night.oracle.messages[row.id].type


def test_hourly_counts_are_those_of_the_history(night: Night) -> None:
    expected = night.oracle.counts()
    found = {(micros(row["hour"]), row["type"]): row for row in rows_of(night.lake, "metrics_hour")}
    assert found.keys() == expected.keys()
    for key, counts in expected.items():
        assert {name: found[key][name] for name in COUNTED} == {
            name: counts[name] for name in COUNTED
        }


@pytest.mark.parametrize("name", ["wait", "run"])
def test_percentiles_are_right_to_a_bucket(night: Night, name: str) -> None:
    found = {(micros(row["hour"]), row["type"]): row for row in rows_of(night.lake, "metrics_hour")}
    for key, values in night.oracle.times(name).items():
        for percent in (50, 95, 99):
            assert near(found[key][f"{name}_p{percent}"], values, percent), (key, percent)
        assert found[key][f"{name}_sum"] == pytest.approx(sum(values))


def test_histograms_of_all_hours_add_up(night: Night) -> None:
    told = read_report_data(lakes.find(str(night.lake)), 24)
    values = [each for part in night.oracle.times("run").values() for each in part]
    assert told.total["attempts"] == len(values)
    for percent in (50, 95, 99):
        assert near(told.total[f"run_p{percent}"], values, percent)


def test_the_backlog_is_what_came_less_what_went(night: Night) -> None:
    expected = night.oracle.backlog()
    found = {
        micros(row["minute"]): (row["backlog"], row["dead"])
        for row in rows_of(night.lake, "backlog_minute")
    }
    assert {minute: found.get(minute, (0, 0)) for minute in expected} == expected
    assert micros(datetime.fromtimestamp((START + 24 * HOUR) / 1e6, UTC)) in found


def test_the_backlog_ends_where_the_store_is(night: Night) -> None:
    last = max(rows_of(night.lake, "backlog_minute"), key=lambda row: row["minute"])
    tallies = on(night.url, lambda broker: broker.store.census())
    places = {each.place: each.count for each in tallies if each.queue_id == last["queue_id"]}
    unfinished = sum(places.get(name, 0) for name in ("ready", "scheduled", "lease"))
    assert (last["backlog"], last["dead"]) == (unfinished, places.get("dead", 0))


def test_consumers_have_what_they_did(night: Night) -> None:
    expected: Counter[tuple[int, str, str]] = Counter()
    for row in night.oracle.worked():
        key = hour_of(row.at), str(row.consumer)
        expected[*key, "attempts"] += 1
        expected[*key, "failures"] += row.verb in FAILED
        expected[*key, "lost"] += row.verb is Verb.RECLAIM
    found = {
        (micros(row["hour"]), row["consumer"], name): row[name]
        for row in rows_of(night.lake, "consumer_hour")
        for name in ("attempts", "failures", "lost")
    }
    assert found == expected


def test_anomalies_are_counted_by_the_rules(night: Night) -> None:
    oracle, expected = night.oracle, Counter[tuple[int, str, str]]()
    for row in oracle.history:
        message = oracle.messages[row.id]
        run = (row.at - row.claimed_at) / 1_000_000 if row.claimed_at else 0
        truths = {
            "long_processing": run > 10,
            "lost_lease": row.verb is Verb.RECLAIM,
            "dlq_movement": row.state is State.DEAD and not oracle.was_dead(row),
            "zombie_message": run > 90,
            "near_dlq": row.verb in FAILED
            and row.state in (State.READY, State.SCHEDULED)
            and row.attempts == 2,
        }
        for kind, true in truths.items():
            expected[hour_of(row.at), message.type, kind] += true
    found = {
        (micros(row["hour"]), row["type"], row["kind"]): row["count"]
        for row in rows_of(night.lake, "anomaly")
        if row["kind"]
        in ("long_processing", "lost_lease", "dlq_movement", "zombie_message", "near_dlq")
    }
    assert found == {key: count for key, count in expected.items() if count}


def test_crowds_are_seen(night: Night) -> None:
    kinds = Counter(row["kind"] for row in rows_of(night.lake, "anomaly"))
    assert min(kinds[name] for name in ("burst_dequeue", "large_payload", "flash_message")) > 0
    batches = Counter(each.created_at for each in night.oracle.messages.values())
    expected: Counter[int] = Counter()
    for at, count in batches.items():
        expected[hour_of(at)] += count if count >= RULES.bulk_messages else 0
    bulks = [row for row in rows_of(night.lake, "anomaly") if row["kind"] == "bulk_enqueue"]
    assert {micros(row["hour"]): row["count"] for row in bulks} == +expected


def test_failures_that_are_alike_are_one_cause(night: Night) -> None:
    found = {row["template"]: row for row in rows_of(night.lake, "triage")}
    assert {"no answer from host-<n> after <n> ms", "bad value <text>", "LEASE_EXPIRED"} <= set(
        found
    )
    total = sum(row["count"] for row in rows_of(night.lake, "triage"))
    assert total == sum(row.verb in FAILED and bool(row.error) for row in night.oracle.worked())


def test_a_second_run_changes_nothing(spark: SparkSession, night: Night) -> None:
    before = newest(night.lake)
    again = run(spark, night.url, str(night.lake), RULES)
    assert (again.analysed.results, again.analysed.hours) == (before, ())
    assert (again.written.saved, again.written.deleted) == (0, 0)


def test_the_store_has_what_the_lake_says(night: Night) -> None:
    async def names(broker: Any) -> set[str]:
        return {each.name for each in await broker.store.documents("anomaly")}

    assert on(night.url, names) == {f"lake/{row['id']}" for row in rows_of(night.lake, "anomaly")}


def test_many_small_runs_come_to_the_same_as_one(night: Night) -> None:
    assert everything(night.lake) == everything(night.whole)
    assert newest(night.lake).number == 2


def test_no_history_is_no_trouble(spark: SparkSession, tmp_path: Path) -> None:
    url, lake = f"sqlite:///{tmp_path / 'empty.db'}", tmp_path / "lake"
    on(url, lambda broker: broker.store.now())
    done = run(spark, url, str(lake))
    assert (done.figures, done.analysed.hours) == (None, ())


@LONG
def test_the_example_of_the_page_runs_and_what_nobody_claimed_is_a_backlog(
    spark: SparkSession, tmp_path: Path
) -> None:
    url, lake = f"sqlite:///{tmp_path / 'waiting.db'}", tmp_path / "lake"
    publish(url, 5)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(example.replace("sqlite:///penstock.db", url).replace('"lake"', f'"{lake}"'), {})
    told = read_report_data(lakes.find(str(lake)), 1)
    assert (told.total["published"], told.total["run_p50"]) == (5, None)
    assert [rows[-1]["backlog"] for rows in told.backlog.values()] == [5]


def test_messages_that_fail_alike_in_several_hands_are_poison(night: Night) -> None:
    expected: Counter[tuple[int, str]] = Counter()
    seen: dict[tuple[int, str], list[str | None]] = {}
    for row in night.oracle.history:
        if row.verb in FAILED and row.error:
            hands = seen.setdefault((row.id, row.error.rstrip("0123456789")), [])
            hands.append(row.consumer)
            if len(hands) >= 3 and len(set(hands)) >= 2:
                expected[hour_of(row.at), night.oracle.messages[row.id].type] += 1
    assert expected
    assert count_anomalies(night.lake, "poison_message") == expected


def test_an_hour_of_retries_is_a_storm(night: Night) -> None:
    assert count_anomalies(night.lake, "retry_storm") == {
        key: each["retried"]
        for key, each in night.oracle.counts().items()
        if each["retried"] >= RULES.storm_retries
        and each["retried"] >= RULES.storm_share * each["attempts"]
    }


def test_a_consumer_that_only_loses_is_stuck(night: Night) -> None:
    lost, completed = Counter[tuple[int, str]](), Counter[tuple[int, str]]()
    for row in night.oracle.worked():
        lost[hour_of(row.at), str(row.consumer)] += row.verb is Verb.RECLAIM
        completed[hour_of(row.at), str(row.consumer)] += row.state is State.COMPLETED
    found = {
        (micros(row["hour"]), row["consumer"]): row["count"]
        for row in rows_of(night.lake, "anomaly")
        if row["kind"] == "stuck_consumer"
    }
    assert found == {key: n for key, n in lost.items() if n and not completed[key]}


def count_anomalies(lake: Path, kind: str) -> dict[tuple[int, str], int]:
    rows = [row for row in rows_of(lake, "anomaly") if row["kind"] == kind]
    return {(micros(row["hour"]), row["type"]): row["count"] for row in rows}


def test_what_a_killed_run_left_behind_is_swept_away(spark: SparkSession, night: Night) -> None:
    before = everything(night.lake)
    half = night.lake / "anomaly" / "run-0000000009" / "day=2026-01-01" / "part-0.parquet"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"PAR1")
    analyze(spark, night.url, str(night.lake), RULES)
    assert (half.exists(), everything(night.lake)) == (False, before)


def test_a_torn_manifest_of_results_is_named(spark: SparkSession, night: Night) -> None:
    path = night.lake / "_results" / newest(night.lake).name
    text = path.read_bytes()
    try:
        path.write_bytes(text[:-9])
        with pytest.raises(InvalidState, match="is damaged or was edited"):
            analyze(spark, night.url, str(night.lake), RULES)
        path.write_bytes(text.replace(b'"schema":2', b'"schema":9'))
        with pytest.raises(InvalidState, match="has schema 9 and this Penstock supports up to 2"):
            analyze(spark, night.url, str(night.lake), RULES)
    finally:
        path.write_bytes(text)


def test_a_lake_of_another_store_is_left_alone(spark: SparkSession, night: Night, url: str) -> None:
    with pytest.raises(InvalidState, match="belongs to another store"):
        run(spark, url, str(night.lake), RULES)


def test_the_report_is_one_page_that_needs_nothing_else(night: Night, terminal: Terminal) -> None:
    said = terminal.call("pipeline", "report", "--lake", night.lake, "--out", "night.html").out
    page = (terminal.folder / "night.html").read_text()
    grave = Counter(row["severity"] for row in rows_of(night.lake, "anomaly"))
    counts = f"{grave['critical']} critical anomalies, {grave['warning']} warnings"
    assert said == f"night.html: 24 hours, {counts}\n"
    ElementTree.fromstring(re.sub(r"<!doctype html>|<meta [^>]*>", "", page))
    assert not re.search(r"\b(src|href|script|import)\b|url\(", page)
    assert "no answer from host-&lt;n&gt; after &lt;n&gt; ms" in page


def test_a_report_before_the_first_run_says_what_to_do(
    url: str, lake: Path, terminal: Terminal
) -> None:
    extract(in_process(), url, str(lake))
    said = terminal.call("pipeline", "report", "--lake", lake, code=1).err
    assert "has no results yet; run penstock pipeline run first" in said


def test_the_command_says_what_it_found(
    spark: SparkSession, night: Night, terminal: Terminal
) -> None:
    said = terminal.call("pipeline", "run", "--url", night.url, "--lake", night.lake, "--json",
                         *(word for rule in CHANGES for word in ("--rule", rule))).json  # fmt: skip
    assert (said["hours"], said["extracted"]["messages"]) == (0, 0)
    assert said["anomalies"] == Counter(row["kind"] for row in rows_of(night.lake, "anomaly"))
