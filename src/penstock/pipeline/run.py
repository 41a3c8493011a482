"""Runs the whole pipeline: extract, analyze, and write the results back to the store."""

from collections.abc import Callable
from functools import partial

from msgspec import Struct
from pyspark.sql import SparkSession

from penstock.model.anomalies import AnomalyThresholds
from penstock.pipeline.analytics.job import STEPS as ANALYSIS
from penstock.pipeline.analytics.job import AnalyticsResult, analyze
from penstock.pipeline.extraction.extract import ExtractResult, extract
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.report.data import ReportData, read_report_data
from penstock.pipeline.report.writeback import HOURS, WritebackResult, write_back
from penstock.pipeline.store_access import make_absolute_url, use_store

STEPS = ("extract", *ANALYSIS, "write back")


class RunResult(Struct, frozen=True):
    """The result of each step. `figures` is None if the lake has no history."""

    extracted: ExtractResult
    analysed: AnalyticsResult
    written: WritebackResult
    figures: ReportData | None


def run(
    spark: SparkSession,
    url: str,
    lake: str,
    rules: AnomalyThresholds | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> RunResult:
    """Runs every step and calls `progress` after each. Safe to repeat, also after a crash."""
    url = make_absolute_url(url)
    extracted = extract(spark, url, lake)
    progress("extract")
    analysed = analyze(spark, url, lake, rules, progress=progress)
    figures = read_report_data(lakes.find(lake), HOURS) if analysed.results.through else None
    written = WritebackResult() if figures is None else use_store(url, partial(write_back, figures))
    progress("write back")
    return RunResult(extracted, analysed, written, figures)
