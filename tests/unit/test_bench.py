"""The benchmark runs, and its lines have the shape that readers parse."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import msgspec
import pytest

ROOT = Path(__file__).parents[2]


class Line(msgspec.Struct, forbid_unknown_fields=True):
    store: Literal["sqlite"]
    measure: str
    value: float
    reference: float | None
    ratio: float | None
    unit: str
    low: float | None
    high: float | None
    note: str


def bench(directory: Path, *words: str) -> str:
    command = [sys.executable, "-m", "bench", "sqlite", "--quick", "--dir", str(directory), *words]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def test_json_is_one_object_for_each_measure_asked_for(tmp_path: Path) -> None:
    output = bench(tmp_path, "--json", "--only", "bulk", "idle_cpu_percent")
    first, second = (msgspec.json.decode(text, type=Line) for text in output.splitlines())
    assert (first.measure, first.unit) == ("bulk", "msg/s")
    assert first.reference is not None
    assert first.low == first.ratio == first.high == first.value / first.reference
    assert (second.measure, second.unit, second.reference) == ("idle_cpu_percent", "%", None)


def test_the_files_of_a_run_do_not_outlive_it(tmp_path: Path) -> None:
    table = bench(tmp_path, "--only", "drain")
    assert table.splitlines()[-1].startswith("drain ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(find_spec("huey") is not None, reason="huey is installed")
def test_a_peer_that_is_not_installed_is_said_to_be_missing(tmp_path: Path) -> None:
    assert bench(tmp_path, "--only", "drain_beside_peer").endswith("huey is not installed\n")
