"""A driver of extracts that is killed at its first step, then at its second, and so on.

python -m tests.pipeline.killing URL LAKE EVERY
"""

import os
import signal
import sys
from itertools import count
from pathlib import Path

from penstock.pipeline.extraction.extract import extract
from penstock.pipeline.lake.compact import compact
from tests.pipeline.engines import files_agree
from tests.pipeline.scenes import agrees, in_process, publish

# What a driver does to the lake.
STEPS = ("os.link", "os.remove", "os.mkdir", "os.rmdir", "open")


def die_at(step: int, lake: str) -> None:
    left = step

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        if event in STEPS and changes(event, arguments, lake):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def changes(event: str, arguments: tuple[object, ...], lake: str) -> bool:
    if not str(arguments[0]).startswith(lake):
        return False
    return event != "open" or bool(int(str(arguments[2])) & (os.O_WRONLY | os.O_RDWR))


def kill_at(url: str, lake: str, step: int) -> bool:
    child = os.fork()
    if child == 0:
        die_at(step, lake)
        extract(in_process(), url, lake, batch=4)
        compact(in_process(), lake)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return os.WIFSIGNALED(status)


def main(url: str, lake: str, every: str) -> None:
    kills = 0
    for step in count(1, int(every)):
        publish(url, 7)
        if not kill_at(url, lake, step):
            break
        kills += 1
        extract(in_process(), url, lake)
        assert agrees(url, Path(lake)), f"killed at step {step}"
        assert files_agree(lake), f"killed at step {step}"
    print(kills)


if __name__ == "__main__":
    main(*sys.argv[1:])
