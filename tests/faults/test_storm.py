"""A storm of real processes breaks no promise."""

import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests.faults.storm.nemesis import Kind, plan

ROOT = Path(__file__).parents[2]
# Faults rage for so long; starting, draining and judging take as long again on a busy machine.
SECONDS = 120 if os.environ.get("PENSTOCK_TEST_ALL") else 20


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
@pytest.mark.timeout(600)
def test_a_storm_breaks_no_promise() -> None:
    command = [sys.executable, "-m", "tests.faults.storm", "sqlite", "--seconds", str(SECONDS)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # Shown by pytest when it fails: the seed, the report, and where the histories are kept.
    print(ran.stderr, ran.stdout)
    assert ran.returncode == 0, f"{ran.stderr}{ran.stdout}"


def test_a_seed_is_a_plan() -> None:
    first, again, other = (plan(seed, 60.0, ["a", "b"]) for seed in (7, 7, 8))
    assert first == again != other


def test_a_plan_has_every_kind_of_fault() -> None:
    for seed in range(20):
        kinds = {strike.kind for strike in plan(seed, 20.0, ["a", "b"])}
        assert kinds == set(get_args(Kind))
