"""Histograms of durations, with buckets that grow by 2 %, and their percentiles.

The bounds are whole microseconds, computed exactly, so that the historian and Spark put every
duration into the same bucket. Histograms can be added in any order with the same result.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from math import ceil

GROWTH = 1.02
# The bucket of one microsecond, the resolution of a store, and one of about 90 years.
FIRST_BUCKET, LAST_BUCKET = -697, 1_100
PERCENTILES = (50, 95, 99)
# Histograms of a minute join this many buckets: each is 17 % wide instead of 2 %.
COARSE = 8


def compute_bound(bucket: int) -> int:
    """Returns the longest duration of a bucket in microseconds: 1.02 to the power of its number."""
    if bucket < 0:
        return int(10**6 * 50**-bucket // 51**-bucket)
    return int(10**6 * 51**bucket // 50**bucket)


BOUNDS = tuple(compute_bound(bucket) for bucket in range(FIRST_BUCKET, LAST_BUCKET))


def find_bucket(micros: int) -> int:
    """Returns the bucket of a duration. The shortest one has those below a microsecond too."""
    return FIRST_BUCKET + bisect_left(BOUNDS, micros)


def make_histogram(durations: Sequence[int]) -> dict[int, int]:
    """Counts sorted durations by bucket, with one search for each bucket instead of each value."""
    found: dict[int, int] = {}
    place = 0
    while place < len(durations):
        bucket = find_bucket(durations[place])
        after = len(durations)
        if bucket < LAST_BUCKET:
            after = bisect_right(durations, BOUNDS[bucket - FIRST_BUCKET], place)
        found[bucket] = after - place
        place = after
    return found


def add_histogram(total: dict[int, int], other: Mapping[int, int]) -> None:
    for bucket, count in other.items():
        total[bucket] = total.get(bucket, 0) + count


def coarsen(histogram: Mapping[int, int]) -> dict[int, int]:
    """Joins neighboring buckets. Each is named after the one in its middle."""
    joined: dict[int, int] = {}
    for bucket, count in histogram.items():
        middle = bucket - bucket % COARSE + COARSE // 2
        joined[middle] = joined.get(middle, 0) + count
    return joined


def compute_percentiles(histogram: Mapping[int, int]) -> list[float | None]:
    buckets = sorted(histogram.items())
    return [compute_quantile(buckets, percent) for percent in PERCENTILES]


def compute_quantile(buckets: Sequence[tuple[int, int]], percent: int) -> float | None:
    """Returns the middle of the percentile's bucket, or None. Buckets must be sorted."""
    left = ceil(count_values(buckets) * percent / 100)
    for bucket, count in buckets:
        left -= count
        if left <= 0:
            return compute_bucket_middle(bucket)
    return None


def count_values(buckets: Iterable[tuple[int, int]]) -> int:
    return sum(count for _, count in buckets)


def compute_bucket_middle(bucket: int) -> float:
    """Returns seconds, within 1 % of every value in the bucket."""
    return float(GROWTH**bucket * 2 / (1 + GROWTH))
