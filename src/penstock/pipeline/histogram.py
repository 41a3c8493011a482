"""How long something took, counted in buckets that each reach 2 % further than the last.

A percentile is right to 1 %. Buckets of two hours, or two queues, are added up to those of both,
in any order and with the same outcome: a run that is repeated changes nothing.
"""

import math

from pyspark.sql import Column
from pyspark.sql import functions as f

from penstock.pipeline.quantiles import GROWTH, SMALLEST

PERCENTILES = (50, 95, 99)


def bucket(seconds: Column) -> Column:
    """Which bucket a length of time falls in; below a microsecond is a microsecond."""
    bounded = f.greatest(seconds, f.lit(SMALLEST))
    return f.ceil(f.log(bounded) / f.lit(math.log(GROWTH))).cast("int")


def seconds_of(number: Column) -> Column:
    """The middle of a bucket."""
    return f.pow(f.lit(GROWTH), number) * f.lit(2 / (1 + GROWTH))


def gathered(ours: Column) -> Column:
    """Aggregate: the histogram of those rows with `bucket` and `count`; null of none."""
    each = f.collect_list(f.when(ours, f.struct("bucket", "count")))
    return f.when(f.size(each) > 0, f.array_sort(each))


def percentile(name: str, percent: int) -> Column:
    """The time that so many percent did not take longer than; null of nothing."""
    total = f"aggregate({name}, 0L, (sum, each) -> sum + each.count)"
    found = f"""aggregate({name}, named_struct('left', ceil({total} * {percent} / 100.0D),
                                               'bucket', cast(null as int)),
        (walk, each) -> if(walk.bucket is not null, walk,
            named_struct('left', walk.left - each.count,
                         'bucket', if(walk.left <= each.count, each.bucket, null))),
        walk -> walk.bucket)"""
    return seconds_of(f.expr(found)).alias(f"{name.removesuffix('_histogram')}_p{percent}")


def percentiles(name: str) -> list[Column]:
    return [percentile(name, percent) for percent in PERCENTILES]
