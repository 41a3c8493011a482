"""Computes percentiles of histograms in plain Python."""

from collections.abc import Sequence
from math import ceil

GROWTH = 1.02
# One microsecond, the resolution of a store.
SMALLEST = 1e-6


def compute_quantile(buckets: Sequence[tuple[int, int]], percent: int) -> float | None:
    """Returns the middle of the percentile's bucket, or None. Buckets must be sorted."""
    left = ceil(sum(count for _, count in buckets) * percent / 100)
    for bucket, count in buckets:
        left -= count
        if left <= 0:
            return compute_bucket_middle(bucket)
    return None


def compute_bucket_middle(bucket: int) -> float:
    """Returns seconds, within 1 % of every value in the bucket."""
    return float(GROWTH**bucket * 2 / (1 + GROWTH))
