"""A store that worked on two days, and its lake with the results of three runs."""

from pathlib import Path

from pyspark.sql import SparkSession

from penstock.pipeline.analytics.thresholds import load
from penstock.pipeline.run import run
from penstock.testing.simulation import START
from tests.pipeline.weeks import HOUR, live

MESSAGES = 14
FIRST_DAY, THIRD_DAY = "2026-01-01", "2026-01-03"
# Low enough for so few messages.
CHANGES = (
    "burst_claims=4",
    "bulk_messages=10",
    "storm_retries=2",
    "storm_share=0.2",
    "stuck_leases=1",
)
RULES = load(None, CHANGES)


class Days:
    """Two runs on the first day, so that it is remade, and one on the third, which is not."""

    def __init__(self, spark: SparkSession, url: str, lake: Path) -> None:
        self.url, self.lake = url, lake
        for hour in (0, 1, 48):
            live(url, [MESSAGES], START + hour * HOUR)
            run(spark, url, str(lake), RULES)
