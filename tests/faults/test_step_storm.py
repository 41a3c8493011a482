"""Workers that are killed lose no step, and run none again."""

import subprocess
import sys

import pytest

from tests.extent import ALL
from tests.faults.step_storm import Line, check
from tests.faults.test_storm import ROOT

SECONDS = 20 if ALL else 3
STORES = ["sqlite", "postgres", "mariadb", "redis"] if ALL else ["sqlite"]


@pytest.mark.skipif(sys.platform != "linux", reason="workers end with the test by prctl")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", STORES)
def test_killed_workers_lose_no_step_and_run_none_again(store: str) -> None:
    command = [sys.executable, "-m", "tests.faults.step_storm", store, "--seconds", str(SECONDS)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stderr}{ran.stdout}"


RUN, SEEN = Line("run", "1", 7, "pay", "a"), Line("see", "1", 7, "pay", "a")


def test_a_step_that_runs_again_after_its_result_is_found() -> None:
    assert check([RUN, RUN, SEEN], [], []) == []
    assert check([RUN, SEEN, RUN], [], []) == ["('1', 'pay') ran again after a run had its result"]
    # A worker that has lost its lease may still be in the function.
    assert check([RUN, SEEN._replace(fence=8), RUN], [], []) == []


def test_a_result_that_changes_is_found() -> None:
    later = SEEN._replace(value="b", fence=8)
    assert check([RUN, SEEN, later], [], []) == ["('1', 'pay') returned a, later b"]


def test_a_message_that_lacks_steps_and_a_fan_in_that_lacks_parents_are_found() -> None:
    found = check([SEEN], ["1"], ["2"])
    assert "message 1: no last" in found
    assert "message 1 has 0 children" in found
    assert "fan-in 2 of workflow 0: None" in found
