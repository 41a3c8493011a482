"""Outlives a test process that is killed, and takes its server with it.

Run as a program: waits for the end of its input, ends every process at work in the directory, and
removes it. Its input ends when whoever started it closes it, or dies.
"""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.servers.processes import at_work_in, end, kill_all_in

ROOT = Path(__file__).parents[2]
GRACE = 10.0


class Keeper:
    """Keeps a directory and what runs in it for as long as this process wants it."""

    def __init__(self, directory: Path, data: Path) -> None:
        command = [sys.executable, "-m", __name__, str(directory), str(data)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True
        )

    def end(self) -> None:
        self.process.communicate()


def main(directory: Path, data: Path) -> None:
    sys.stdin.buffer.read()
    # An ending PostgreSQL gives its shared memory back, a killed one does not.
    end(signal.SIGQUIT, at_work_in(data), GRACE)
    kill_all_in(data)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
