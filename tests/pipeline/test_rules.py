"""From when on something is an anomaly, as an operator says it; and what is said of numbers."""

from pathlib import Path

import pytest

from penstock.errors import InvalidInput
from penstock.model.anomalies import SEVERITIES, AnomalyThresholds
from penstock.pipeline.analytics.thresholds import load
from penstock.pipeline.report.charts import ChartLine, ChartMark, draw_chart
from penstock.pipeline.session import check_master_reachable
from penstock.rules.anomaly_text import (
    SENTENCES,
    format_anomaly,
    format_number,
    format_seconds,
    format_share,
)
from penstock.rules.histograms import compute_quantile
from tests.cli.terminal import Terminal
from tests.servers.places import free_port


def test_rules_of_a_file_are_beaten_by_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('slow_over = 60\npayload_over = 100\noff = ["flash_message"]\n')
    assert load(str(path), ["slow_over=90", "storm_share = 0.9"]) == AnomalyThresholds(
        slow_over=90, payload_over=100, storm_share=0.9, off=("flash_message",)
    )
    assert load(None) == AnomalyThresholds()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("slow_ovr = 1", "unknown field `slow_ovr`; known rules are flash_under"),
        ('slow_over = "long"', "Expected `float`"),
        ("slow_over = ", "is not valid TOML"),
        ("burst_claims = 1", "rule burst_claims must be at least 2, not 1"),
        ('off = ["flash"]', "unknown anomaly flash; expected one of flash_message"),
        ("season_least_days = 40", "season_least_days must not exceed season_days"),
    ],
)
def test_a_wrong_rule_is_named(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=reason):
        load(str(path))


def test_a_wrong_rule_is_named_before_spark_is_started(terminal: Terminal, url: str) -> None:
    for words, reason in {
        ("--rule", "slow_over"): "a rule must be NAME=VALUE, not 'slow_over'",
        ("--rules", "gone.toml"): "cannot read rules file 'gone.toml'",
    }.items():
        said = terminal.call("pipeline", "run", "--url", url, *words, code=1).err
        assert said.startswith(f"penstock: {reason}")


def test_other_rules_have_another_digest() -> None:
    assert AnomalyThresholds().digest == AnomalyThresholds().digest
    assert AnomalyThresholds(slow_over=11).digest != AnomalyThresholds().digest


def test_every_kind_of_anomaly_has_a_sentence() -> None:
    assert SENTENCES.keys() == SEVERITIES.keys()
    row = {"count": 3, "value": 0.25, "threshold": 2.0, "consumer": "c1"}
    told = {kind: format_anomaly({"kind": kind, **row}) for kind in SEVERITIES}
    assert told["stuck_consumer"] == "c1 lost 3 leases and completed nothing"
    assert told["retry_storm"] == "3 retries, 25 % of all attempts"


def test_numbers_are_short() -> None:
    times = (0.0000005, 0.48, 61, 150, 3 * 86_400, None)
    assert [format_seconds(each) for each in times] == [
        "0 µs",
        "480 ms",
        "61 s",
        "2.5 min",
        "3.0 d",
        "-",
    ]
    assert [format_number(each) for each in (12_345, 1_234_567, None)] == ["12,345", "1.23 M", "-"]
    assert [format_share(each) for each in (0.054, 0.5, None)] == ["5.4 %", "50 %", "-"]


def test_a_quantile_is_the_middle_of_its_bucket() -> None:
    buckets = [(0, 50), (10, 45), (100, 5)]
    found = [compute_quantile(buckets, each) for each in (50, 95, 99)]
    assert found == pytest.approx([1.02**bucket * 2 / 2.02 for bucket, _ in buckets])
    assert compute_quantile([], 50) is None


def test_a_chart_escapes_what_it_is_told_and_leaves_gaps() -> None:
    line = ChartLine("<b>", "red", [(0, 1.0), (3_600, None), (7_200, 2.0)])
    drawn = draw_chart(
        "a & b", [line], (0, 7_200), [ChartMark(3_600, "critical", "<x>")], format_number
    )
    assert drawn.count('class="line red"') == 2
    assert "&lt;b&gt;" in drawn
    assert "a &amp; b" in drawn
    assert "&lt;x&gt;" in drawn
    assert "<b>a" in drawn


def test_a_chart_of_nothing_says_so() -> None:
    assert ">no data</text>" in draw_chart("backlog", [ChartLine("a", "red", [(0, None)])], (0, 60))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("place", ["127.0.0.1:{port}", "127.0.0.1:{port},127.0.0.1:{port}", "host"])
def test_a_master_that_is_not_there_is_missed_soon(place: str) -> None:
    master = f"spark://{place.format(port=free_port())}"
    with pytest.raises(InvalidInput, match="cannot connect to Spark master"):
        check_master_reachable(master)
