"""Drivers that write Delta logs: one is killed at its first commit, others race.

python -m tests.pipeline.syncing die URL LAKE
python -m tests.pipeline.syncing race LAKE
"""

import os
import signal
import sys

from penstock.pipeline.extraction.extract import extract
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake.delta_log import sync_delta
from penstock.pipeline.lake.files import DELTA_LOG
from tests.pipeline.scenes import in_process


def die_at_a_commit() -> None:
    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.link" and f"/{DELTA_LOG}/" in str(arguments[1]):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def race(lake: str) -> None:
    """Begins when the other side does."""
    print("ready", flush=True)
    sys.stdin.readline()
    sync_delta(lakes.find(lake))


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "race":
        race(*words)
    else:
        die_at_a_commit()
        extract(in_process(), *words)
