"""A percentile of a histogram, in plain Python."""

from collections.abc import Sequence
from math import ceil

GROWTH = 1.02
# A microsecond, which is what a store counts in.
SMALLEST = 1e-6


def compute_quantile(buckets: Sequence[tuple[int, int]], percent: int) -> float | None:
    """The middle of the bucket that holds it; the buckets are in order. None of nothing."""
    left = ceil(sum(count for _, count in buckets) * percent / 100)
    for bucket, count in buckets:
        left -= count
        if left <= 0:
            return compute_bucket_middle(bucket)
    return None


def compute_bucket_middle(bucket: int) -> float:
    """Seconds: at most 1 % from everything in the bucket."""
    return float(GROWTH**bucket * 2 / (1 + GROWTH))
