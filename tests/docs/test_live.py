"""What `./dev run` shows: it works, and it stops cleanly."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

ORDERS = """history WHERE state = 'completed' AND queue_id =
    (SELECT id FROM penstock_queue WHERE name = 'orders')"""
LIVE = Path(__file__).parents[2] / "examples" / "live.py"


def start(path: Path, seconds: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-u", LIVE, path, "--seconds", seconds],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_product_runs_live_and_its_work_gets_done(tmp_path: Path) -> None:
    file = tmp_path / "live.db"
    with start(file, "600") as live:
        # Orders are published over HTTP.
        wait_until(lambda: count(file, ORDERS) > 0, file)
        live.send_signal(signal.SIGINT)
        printed, _ = live.communicate(timeout=100)
    assert live.returncode == 0, printed
    assert "mail" in printed
    assert "Dashboard: http://127.0.0.1:" in printed
    assert f"./dev exec penstock --url sqlite:///{file} status" in printed
    assert re.search(r"ran for \d+ s: \d+ messages published, \d+ ended", printed)
    assert count(file, "worker") == 0


def count(file: Path, table: str) -> int:
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as db:
        (found,) = db.execute(f"SELECT count(*) FROM penstock_{table}").fetchone()
    return int(found)


def wait_until(happened: Callable[[], bool], file: Path) -> None:
    for _ in range(900):
        with suppress(sqlite3.OperationalError):
            if happened():
                return
        threading.Event().wait(0.1)
    raise AssertionError(file.with_name("live.db.log").read_text())


def test_an_interrupted_run_stops_its_workers(tmp_path: Path) -> None:
    with start(tmp_path / "live.db", "600") as live:
        assert live.stdout is not None
        seen = next(line for line in live.stdout if "running on" in line)
        live.send_signal(signal.SIGINT)
        rest, _ = live.communicate(timeout=100)
    assert (live.returncode, "Traceback" in rest) == (0, False), seen + rest
    assert "0 workers on" in rest


def test_a_run_without_a_file_leaves_nothing_behind(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", LIVE, "--seconds", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as live:
        printed, _ = live.communicate(timeout=100)
    assert live.returncode == 0, printed
    assert list(tmp_path.glob("penstock-*")) == []
