"""What goes wrong inside Spark, in words of ours."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from penstock import errors
from penstock.errors import PenstockError, StoreError

# [CLASS_OF_ERROR] what is wrong. SQLSTATE: 42601, and then the plan.
SPARK_ERROR = re.compile(r"^(?:\[[A-Z0-9_.]+\] )?(.*?)(?: SQLSTATE: .*)?$")
PYTHON_ERROR = re.compile(r"(penstock\.errors\.\w+|\w+Error): ")


@contextmanager
def translate_errors() -> Iterator[None]:
    """Of a task that failed its own error is of interest, and not the Java around it."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise parse_error(find_reason(str(error))) from None


def parse_error(text: str) -> PenstockError:
    """One of ours is what it was where it was raised."""
    name, _, said = text.partition(": ")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, PenstockError):
        return kind(said)
    return StoreError(f"Spark did not get through: {text}")


def find_reason(text: str) -> str:
    """The last line of the Python trace in it, or the first line there is."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if PYTHON_ERROR.match(line)]
    return (raised or lines or ["no reason given"])[0].removeprefix("penstock.errors.")


def find_cause(error: PySparkException) -> str:
    """What Spark itself says is wrong, in a line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    found = SPARK_ERROR.match(lines[0]) if lines else None
    return found.group(1) if found else "no reason given"
