"""One Spark for all, and stores: one has messages that wait, ended, failed and were put back."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline import start_session
from tests.cli.terminal import Terminal
from tests.pipeline.analysed import Days
from tests.pipeline.scenes import AnyServer, consume, publish
from tests.servers import s3

ENGINES = ("sqlite", "postgres", "mariadb", "redis")
# For many small queries: what is compiled for each of them is not worth it.
SMALL = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # Each call of a function would look up its line for an error that names it.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


@pytest.fixture(scope="session")
def spark(s3_port: int) -> Iterator[SparkSession]:
    """A task that fails is tried three times. Tasks may use buckets as their driver may."""
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in s3.environment(s3_port).items():
                patch.setenv(variable, value)
            session = stack.enter_context(start_session("local[2,3]", SMALL))
        yield session


@pytest.fixture(scope="session")
def days(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Days:
    folder = tmp_path_factory.mktemp("days")
    return Days(spark, f"sqlite:///{folder / 'store.db'}", folder / "lake")


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"sqlite:///{tmp_path / 'store.db'}"
    publish(made, 30)
    consume(made, 20)
    return made


@pytest.fixture(params=ENGINES)
def each_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield f"sqlite:///{tmp_path / 'store.db'}"
        else:
            server: AnyServer = request.getfixturevalue(f"{request.param}_server")
            yield stack.enter_context(server.database())


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.chdir(tmp_path)
    return Terminal(tmp_path)
