"""A driver of an extract that is killed when its files are there, and no manifest yet.

python -m tests.pipeline.uploading URL LAKE
"""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from pyspark.sql import SparkSession

from penstock.pipeline.extraction.extract import extract
from tests.pipeline.scenes import InProcess, Tasks


class Then(InProcess):
    """Something happens when the tasks are done, and their driver does not know it yet."""

    def __init__(self, happens: Callable[[], object]) -> None:
        self.happens = happens

    def parallelize(self, items: Sequence[Any], _: int) -> Tasks:
        return Interrupted(items, self.happens)


class Interrupted(Tasks):
    def __init__(self, items: Sequence[Any], happens: Callable[[], object]) -> None:
        super().__init__(items)
        self.happens = happens

    def map(self, work: Callable[[Any], Any]) -> Tasks:
        self.work = work
        return self

    def collect(self) -> list[Any]:
        done = super().collect()
        self.happens()
        return done


def interrupt(happens: Callable[[], object]) -> SparkSession:
    return cast(SparkSession, Then(happens))


if __name__ == "__main__":
    url, lake = sys.argv[1:]
    extract(interrupt(lambda: os.kill(os.getpid(), signal.SIGKILL)), url, lake)
