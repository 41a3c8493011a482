"""What goes wrong inside Spark, in words of ours."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock.errors import StoreError

PYTHON_ERROR = re.compile(r"(penstock\.errors\.\w+|\w+Error): ")


@contextmanager
def told() -> Iterator[None]:
    """Of a task that failed its own error is of interest, and not the Java around it."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise StoreError(f"Spark did not get through: {reason(str(error))}") from None


def reason(text: str) -> str:
    """The last line of the Python trace in it, or the first line there is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if PYTHON_ERROR.match(line)]
    return (errors or lines or ["no reason given"])[0].removeprefix("penstock.errors.")
