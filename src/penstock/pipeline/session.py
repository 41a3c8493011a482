"""Starts Spark with settings that suit the pipeline: the only place that has any."""

import logging
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.sql import SparkSession

from penstock.errors import InvalidInput
from penstock.pipeline.java import write_home
from penstock.pipeline.spark.errors import find_cause
from penstock.pipeline.spark.source import PenstockSource

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
JAVA = (
    # Short pauses, for which Java works more by itself, are nothing that a batch needs.
    "-XX:+UseParallelGC",
    # A run is over before most of what Java would optimise for it has paid: ten times as hot first.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": " ".join(JAVA),
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    PUSHDOWN: "true",
}
MASTER = re.compile(r"local(-cluster)?(\[[\w*, ]+\])?|yarn|(spark|k8s|sc)://\S+")
LOCAL_MASTER = "local[*]"
REMOTE = "sc://"
# Set for a script that spark-submit runs: who submits it says where Spark is, and how large.
SUBMITTED = "PYSPARK_GATEWAY_PORT"
# Seconds until a master that does not answer is taken for one that is not there.
CONNECT_TIMEOUT_S = 5.0
# What is held in memory while rows are joined is one partition for each processor.
FEW_ROWS, PARTITION_ROWS = 200_000, 250_000
# Lists are gathered in memory as well: Spark sorts all rows instead once there are 128 of them.
LISTS = {"spark.sql.objectHashAggregate.sortBased.fallbackThreshold": str(PARTITION_ROWS)}
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
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
def start_session(
    master: str = LOCAL_MASTER, settings: Mapping[str, str] = NO_SETTINGS
) -> Iterator[SparkSession]:
    """A session that knows the format penstock, and ends with the block.

    On this machine, on a cluster, or with sc:// on a server of Spark Connect. `settings` of Spark
    beat ours.

    One that is there already is used as it is, and stays.
    """
    check_master(master)
    if (running := SparkSession.getActiveSession()) is not None:
        yield register(running)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-spark-") as scratch:
        spark = connect(master, Path(scratch), dict(settings))
        try:
            yield register(spark)
        finally:
            spark.stop()


def connect(master: str, scratch: Path, settings: dict[str, str]) -> SparkSession:
    # What may be set on a Spark that others started.
    ours = {name: value for name, value in SETTINGS.items() if name.startswith("spark.sql.")}
    if master.startswith(REMOTE):
        return attach(master, ours | settings)
    if SUBMITTED in os.environ:
        return start(None if master == LOCAL_MASTER else master, ours | settings)
    check_master_reachable(master)
    prepare(scratch, local=master.startswith("local"))
    places = {"spark.local.dir": str(scratch), "spark.sql.warehouse.dir": str(scratch)}
    return start(master, SETTINGS | places | settings)


@contextmanager
def tune(spark: SparkSession, rows: int) -> Iterator[None]:
    """For a job over about so many rows: few are not worth compiling for, many are divided."""
    few = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    many = {"spark.sql.shuffle.partitions": str(max(4, rows // PARTITION_ROWS))}
    wanted = (few if rows < FEW_ROWS else many) | LISTS
    before = {name: spark.conf.get(name, None) for name in wanted}
    try:
        for name, value in wanted.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def prepare(scratch: Path, *, local: bool) -> None:
    """What Spark reads from the environment, unless somebody said otherwise."""
    os.environ["JAVA_HOME"] = str(write_home(scratch / "java"))
    os.environ.setdefault("SPARK_CONF_DIR", str(write_quiet(scratch / "conf")))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def write_quiet(folder: Path) -> Path:
    folder.mkdir()
    (folder / "log4j2.properties").write_text(QUIET)
    return folder


def check_master(master: str) -> None:
    """Spark itself says so in forty lines of Java."""
    if not MASTER.fullmatch(master):
        raise InvalidInput(
            f"master {master!r} is none that Spark knows: local[*], spark://host:7077, yarn,"
            " k8s://..., sc://host:15002"
        )


def attach(remote: str, settings: Mapping[str, str]) -> SparkSession:
    """To a server that somebody else started."""
    check_remote_reachable(remote)
    # What fails is raised as well.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        builder = SparkSession.builder.remote(remote)
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.version  # noqa: B018 - only now it is asked for something
    except ImportError as error:
        raise InvalidInput(f"{error}: pip install 'penstock[connect]'") from None
    except PySparkException as error:
        # Without what follows the host: a token may be in it.
        raise InvalidInput(
            f"no Spark at {remote.partition('/;')[0]}: {find_cause(error)}"
        ) from None
    return session


def check_master_reachable(master: str) -> None:
    """Spark itself tries for a minute and a half."""
    scheme, _, places = master.partition("://")
    if scheme != "spark":
        return
    missed = []
    for place in places.split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
        except (OSError, ValueError, OverflowError) as error:
            missed.append(f"{place}: {error}")
        else:
            return
    raise InvalidInput(f"no Spark answers at master {master!r} ({'; '.join(missed)})")


def check_remote_reachable(remote: str) -> None:
    """Spark itself would try for minutes."""
    place = urlsplit(remote)
    try:
        socket.create_connection((place.hostname or "", place.port or 15_002), 10).close()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"no Spark at sc://{place.netloc}: {error}") from None


def start(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName("penstock")
    builder = builder if master is None else builder.master(master)
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
