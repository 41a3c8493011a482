"""The tour ends well, and stops cleanly when it is interrupted."""

import os
import signal
import subprocess
import sys
from pathlib import Path

TOUR = Path(__file__).parents[2] / "examples" / "tour.py"


def start(*arguments: str | Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, TOUR, *arguments],
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_tour_shows_a_retry_a_crash_a_redrive_and_an_ordered_line(tmp_path: Path) -> None:
    with start(tmp_path / "tour.db", "--seconds", "1") as tour:
        printed, _ = tour.communicate(timeout=60)
    assert tour.returncode == 0, printed
    nacked, reclaimed, redriven, in_order = [
        line.split()[0] for line in printed.splitlines()[-5:-1]
    ]
    assert (nacked, redriven, in_order) == ("3", "1", "yes")
    assert int(reclaimed) >= 1
    assert printed.endswith(f"Database file: {tmp_path / 'tour.db'}\n")


def test_an_interrupted_tour_stops_without_a_traceback(tmp_path: Path) -> None:
    with start(tmp_path / "tour.db", "--seconds", "60") as tour:
        assert tour.stdout is not None
        seen = next(line for line in tour.stdout if "its consumer crashes" in line)
        tour.send_signal(signal.SIGINT)
        rest, _ = tour.communicate(timeout=60)
    assert (tour.returncode, "Traceback" in rest) == (0, False), seen + rest
    assert "Stopped" in rest
