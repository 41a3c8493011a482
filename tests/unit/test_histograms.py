"""Durations are counted by bucket, each in the same one whether alone or among others."""

from collections import Counter
from random import Random

import pytest

from penstock.rules.histograms import BOUNDS, find_bucket, make_histogram


@pytest.mark.parametrize("seed", range(20))
def test_sorted_durations_fall_into_the_buckets_of_single_ones(seed: int) -> None:
    random = Random(seed)
    edges = [bound + step for bound in random.sample(BOUNDS, 50) for step in (-1, 0, 1)]
    spread = [int(10 ** random.uniform(0, 16)) for _ in range(200)]
    durations = sorted([0, 0, *edges, *spread, BOUNDS[-1] + 1, BOUNDS[-1] + 2])
    assert make_histogram(durations) == Counter(map(find_bucket, durations))
