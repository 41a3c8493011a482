"""Translates Spark errors to Penstock errors."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock import errors
from penstock.errors import PenstockError, StoreError

# The format is "[ERROR_CLASS] message. SQLSTATE: 42601" followed by the query plan.
SPARK_ERROR = re.compile(r"^(?:\[[A-Z0-9_.]+\] )?(.*?)(?: SQLSTATE: .*)?$")
PYTHON_ERROR = re.compile(r"(penstock\.errors\.\w+|\w+Error): ")


@contextmanager
def translate_errors() -> Iterator[None]:
    """Raises the error of a failed task instead of the Java exception around it."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise parse_error(find_reason(str(error))) from None


def parse_error(text: str) -> PenstockError:
    """Restores the class of a Penstock error."""
    name, _, said = text.partition(": ")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, PenstockError):
        return kind(said)
    return StoreError(f"the Spark job failed: {text}")


def find_reason(text: str) -> str:
    """Returns the exception line of the Python traceback, or the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if PYTHON_ERROR.match(line)]
    return (raised or lines or ["no reason given"])[0].removeprefix("penstock.errors.")


def find_cause(error: PySparkException) -> str:
    """Returns the message of a Spark error as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    found = SPARK_ERROR.match(lines[0]) if lines else None
    return found.group(1) if found else "no reason given"
