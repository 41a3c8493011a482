"""Histograms of durations, with buckets that grow by 2 %.

Percentiles are accurate to 1 %. Histograms of several hours or queues can be added in any order
with the same result, so a repeated run changes nothing.
"""

import math
from collections.abc import Iterable

from pyspark.sql import Column
from pyspark.sql import functions as f

from penstock.rules.histograms import BOUNDS, FIRST_BUCKET, GROWTH, LAST_BUCKET, PERCENTILES


def find_bucket(seconds: Column) -> Column:
    """Returns the bucket of a duration.

    The logarithm is off by one at most, where a duration is a bound, and the table corrects it.
    """
    micros = f.round(seconds * 1_000_000).cast("long")
    about = f.ceil(f.log(f.greatest(micros, f.lit(1)) / 1e6) / f.lit(math.log(GROWTH))).cast("int")
    near = f.greatest(f.lit(FIRST_BUCKET), f.least(f.lit(LAST_BUCKET - 1), about))
    bounds = f.expr(f"array({', '.join(f'{bound}L' for bound in BOUNDS)})")
    below = f.when(near > FIRST_BUCKET, bounds[near - FIRST_BUCKET - 1])
    return (
        f.when(micros > bounds[near - FIRST_BUCKET], near + 1)
        .when(micros <= below, near - 1)
        .otherwise(near)
    )


def compute_bucket_seconds(number: Column) -> Column:
    """Returns the middle of a bucket in seconds."""
    return f.pow(f.lit(GROWTH), number) * f.lit(2 / (1 + GROWTH))


def gather_buckets(ours: Column) -> Column:
    """Aggregates `bucket` and `count` of matching rows to a histogram; null if there are none."""
    each = f.collect_list(f.when(ours, f.struct("bucket", "count")))
    return f.when(f.size(each) > 0, f.array_sort(each))


def compute_percentiles(name: str) -> list[Column]:
    """Computes the percentiles of a histogram; null if it is null."""
    buckets = walk_buckets(name)
    return [
        compute_bucket_seconds(buckets[f"p{percent}"]).alias(
            f"{name.removesuffix('_histogram')}_p{percent}"
        )
        for percent in PERCENTILES
    ]


def walk_buckets(name: str) -> Column:
    """Finds the buckets of all percentiles in one pass, because each step is slow in Spark."""
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
