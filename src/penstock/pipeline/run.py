"""All of the pipeline in one go: from the store into the lake, and what it tells back again."""

from collections.abc import Callable
from functools import partial

from msgspec import Struct
from pyspark.sql import SparkSession

from penstock.pipeline import lake as lakes
from penstock.pipeline.analyse import STEPS as ANALYSIS
from penstock.pipeline.analyse import Analysed, analyse
from penstock.pipeline.extract import Extracted, extract
from penstock.pipeline.figures import Figures, figures
from penstock.pipeline.rules import Rules
from penstock.pipeline.stores import everywhere, using
from penstock.pipeline.writeback import HOURS, Written, write_back

STEPS = ("extract", *ANALYSIS, "write back")


class Ran(Struct, frozen=True):
    """What each part did; the figures are None of a lake without any history."""

    extracted: Extracted
    analysed: Analysed
    written: Written
    figures: Figures | None


def run(
    spark: SparkSession,
    url: str,
    lake: str,
    rules: Rules | None = None,
    *,
    progress: Callable[[str], None] = lambda _: None,
) -> Ran:
    """Repeated, or after a kill, it goes on, and does nothing twice. `progress` hears each step."""
    url = everywhere(url)
    extracted = extract(spark, url, lake)
    progress("extract")
    analysed = analyse(spark, url, lake, rules, progress=progress)
    told = figures(lakes.find(lake), HOURS) if analysed.results.through else None
    written = Written() if told is None else using(url, partial(write_back, told))
    progress("write back")
    return Ran(extracted, analysed, written, told)
