"""What `./dev run` shows: it works, and it stops cleanly."""

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

LIVE = Path(__file__).parents[2] / "examples" / "live.py"


def start(path: Path, seconds: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-u", LIVE, path, "--seconds", seconds],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_product_runs_live_and_its_work_gets_done(tmp_path: Path) -> None:
    with start(tmp_path / "live.db", "8") as live:
        printed, _ = live.communicate(timeout=100)
    assert live.returncode == 0, printed
    assert "mail" in printed
    with sqlite3.connect(tmp_path / "live.db") as db:
        (done,) = db.execute("SELECT count(*) FROM history WHERE state = 'completed'").fetchone()
        (workers,) = db.execute("SELECT count(*) FROM worker").fetchone()
    db.close()
    assert done > 0, (tmp_path / "live.db.log").read_text()
    assert workers == 0


def test_an_interrupted_run_stops_its_workers(tmp_path: Path) -> None:
    with start(tmp_path / "live.db", "600") as live:
        assert live.stdout is not None
        seen = next(line for line in live.stdout if "working on" in line)
        live.send_signal(signal.SIGINT)
        rest, _ = live.communicate(timeout=100)
    assert (live.returncode, "Traceback" in rest) == (0, False), seen + rest
    assert "0 workers on" in rest
