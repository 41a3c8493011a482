"""How long something took, counted in buckets that each reach 2 % further than the last.

A percentile is right to 1 %. Buckets of two hours, or two queues, are added up to those of both,
in any order and with the same outcome: a run that is repeated changes nothing.
"""

import math
from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as f

from penstock.pipeline.report.quantiles import GROWTH, SMALLEST

PERCENTILES = (50, 95, 99)


def find_bucket(seconds: Column) -> Column:
    """Which bucket a length of time falls in; below a microsecond is a microsecond."""
    bounded = f.greatest(seconds, f.lit(SMALLEST))
    return f.ceil(f.log(bounded) / f.lit(math.log(GROWTH))).cast("int")


def compute_bucket_seconds(number: Column) -> Column:
    """The middle of a bucket."""
    return f.pow(f.lit(GROWTH), number) * f.lit(2 / (1 + GROWTH))


def gather_buckets(ours: Column) -> Column:
    """Aggregate: the histogram of those rows with `bucket` and `count`; null of none."""
    each = f.collect_list(f.when(ours, f.struct("bucket", "count")))
    return f.when(f.size(each) > 0, f.array_sort(each))


def compute_percentiles(name: str) -> list[Column]:
    """The times that so many percent did not take longer than; nulls of nothing."""
    buckets = walk_buckets(name)
    return [
        compute_bucket_seconds(buckets[f"p{percent}"]).alias(
            f"{name.removesuffix('_histogram')}_p{percent}"
        )
        for percent in PERCENTILES
    ]


def walk_buckets(name: str) -> Column:
    """The buckets of all percentiles by one walk: each step of it is a call for Spark."""
    total = f"aggregate({name}, 0L, (sum, each) -> sum + each.count)"
    begin = make_fields(
        f"'n{percent}', ceil({total} * {percent} / 100.0D), 'p{percent}', cast(null as int)"
        for percent in PERCENTILES
    )
    step = make_fields(
        f"'n{percent}', walk.n{percent} - each.count,"
        f" 'p{percent}', if(walk.p{percent} is null and walk.n{percent} <= each.count,"
        f" each.bucket, walk.p{percent})"
        for percent in PERCENTILES
    )
    return f.expr(f"aggregate({name}, {begin}, (walk, each) -> {step})")


def make_fields(texts: Iterable[str]) -> str:
    return f"named_struct({', '.join(texts)})"
