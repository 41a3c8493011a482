"""Starts Spark with settings that suit the pipeline: the only place that has any."""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.errors import InvalidInput
from penstock.pipeline.java import write_home
from penstock.pipeline.source import PenstockSource

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    PUSHDOWN: "true",
}
MASTER = re.compile(r"local(-cluster)?(\[[\w*, ]+\])?|yarn|(spark|k8s)://\S+")
NOTHING: Mapping[str, str] = MappingProxyType({})
# What fails is raised in Python as well.
QUIET = """rootLogger.level = fatal
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = fatal
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n%ex
"""


@contextmanager
def started(
    master: str = "local[*]", settings: Mapping[str, str] = NOTHING
) -> Iterator[SparkSession]:
    """A session that knows the format penstock, and ends with the block.

    `settings` of Spark beat ours.

    One that is there already is used as it is, and stays.
    """
    if (running := SparkSession.getActiveSession()) is not None:
        yield register(running)
        return
    refuse_odd(master)
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as scratch:
        prepare(Path(scratch))
        places = {"spark.local.dir": scratch, "spark.sql.warehouse.dir": scratch}
        spark = start(master, SETTINGS | places | dict(settings))
        try:
            yield register(spark)
        finally:
            spark.stop()


def prepare(scratch: Path) -> None:
    """What Spark reads from the environment, unless somebody said otherwise."""
    os.environ["JAVA_HOME"] = str(write_home(scratch / "java"))
    os.environ.setdefault("SPARK_CONF_DIR", str(write_quiet(scratch / "conf")))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def write_quiet(folder: Path) -> Path:
    folder.mkdir()
    (folder / "log4j2.properties").write_text(QUIET)
    return folder


def refuse_odd(master: str) -> None:
    """Spark itself says so in forty lines of Java."""
    if not MASTER.fullmatch(master):
        raise InvalidInput(
            f"master {master!r} is none that Spark knows: local[*], spark://host:7077, yarn, k8s://..."
        )


def start(master: str, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName("penstock").master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise InvalidInput(f"Spark does not start: {error}") from None
    except Py4JError:
        raise InvalidInput(f"Spark did not start with master {master!r}: is it there?") from None


def register(spark: SparkSession) -> SparkSession:
    """Makes the format known to a session of your own.

    Filters are pushed down only where Spark is told to, and planning fails where it is not.
    """
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PenstockSource)
    return spark
