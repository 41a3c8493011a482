"""Fixtures of all tests: private servers, one of each kind per test process."""

import asyncio
import atexit
import gc
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from penstock import stores
from penstock.testing.simulation import ManualClock
from tests.servers import s3
from tests.servers.mariadb import MariaDB
from tests.servers.places import free_port, memory
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.server import Server, Unavailable

S = TypeVar("S", bound=Server)
names = count(1)
PIPELINE_TESTS = "tests/pipeline/"
# These share one Spark session, so all run in one process.
SPARK_MODULES = tuple(
    f"{PIPELINE_TESTS}test_{name}.py"
    for name in (
        "agreement", "analyse", "backtest", "govern_paths", "older_lakes", "replay", "results",
        "seasonal", "sink", "spark", "spark_lakes", "triage", "work",
    )
)  # fmt: skip
# These take minutes. They start first, so that no process is left working alone at the end.
# Those of a package are together: its servers end when a process leaves it.
SLOW_MODULES = (
    *SPARK_MODULES,
    PIPELINE_TESTS,
    "tests/worker/test_standby.py",
    "tests/faults/test_storm.py",
    "tests/docs/test_examples.py",
    "tests/dashboard/",
    "tests/conformance/test_machine.py",
    "tests/http/test_fuzz.py",
    "tests/http/test_generated_clients.py",
    "tests/http/test_authorization.py",
    "tests/http/test_scaiqueue.py",
    "tests/http/test_notices.py",
    "tests/http/test_settle_rights.py",
    "tests/http/test_access.py",
    "tests/http/test_events.py",
    "tests/worker/test_crash.py",
    "tests/cli/test_queuectl.py",
    "tests/cli/test_workers.py",
    "tests/cli/test_logs.py",
    "tests/cli/test_postgres.py",
    "tests/conformance/test_search.py",
    "tests/conformance/test_fencing.py",
)
# Spark may take minutes to start on a busy machine.
SPARK_TIMEOUT_S = 600


def pytest_configure() -> None:
    """Restores SIGINT, which background jobs of a shell and their children ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: find_turn(item.nodeid))
    for item in items:
        refuse_another_spark(item)
        if item.nodeid.startswith(PIPELINE_TESTS) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


def refuse_another_spark(item: pytest.Item) -> None:
    module, _, _ = item.nodeid.partition("::")
    if "spark" in getattr(item, "fixturenames", ()) and module not in SPARK_MODULES:
        raise pytest.UsageError(f"{module} uses Spark; add it to SPARK_MODULES")


def find_turn(nodeid: str) -> int:
    turns = (turn for turn, start in enumerate(SLOW_MODULES) if nodeid.startswith(start))
    return next(turns, len(SLOW_MODULES))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keeps the garbage collector from scanning 15,000 tests again and again, now and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # At exit, some extensions take what is still frozen for a leak.
        atexit.register(gc.unfreeze)
        gc.enable()


class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Keeps tests of a module in one process, whose servers start once, and all with Spark."""

    def _split_scope(self, nodeid: str) -> str:
        module, _, _ = nodeid.partition("::")
        return SPARK_MODULES[0] if module in SPARK_MODULES else module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return Scheduling(config, log)


def start_server(name: str, start: Callable[[], S]) -> S:
    """Skips on a developer's machine, and fails in the build."""
    try:
        return start()
    except Unavailable as reason:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse(f"{name} cannot be started: {reason}")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def sqlite_template() -> Iterator[Path]:
    """Creates an empty store. A copy of it opens faster than a store that must be migrated."""
    with TemporaryDirectory(prefix="penstock-", dir=memory()) as name:
        path = Path(name) / "queue.db"
        # An async fixture that requests this one has a running loop.
        with ThreadPoolExecutor(1) as executor:
            executor.submit(asyncio.run, create_store(path)).result()
        yield path


async def create_store(path: Path) -> None:
    async with await stores.open(f"sqlite:///{path}", clock=ManualClock()):
        pass


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    with start_server("PostgreSQL", Postgres) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDB]:
    with start_server("MariaDB", MariaDB) as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[Redis]:
    with start_server("Redis", Redis) as server:
        yield server


@pytest.fixture(scope="session")
def s3_port() -> int:
    """Returns a free port for a server that may be started later."""
    return free_port()


@pytest.fixture(scope="session")
def s3_server(s3_port: int) -> Iterator[int]:
    with s3.serving(s3_port):
        yield s3_port


@pytest.fixture
def bucket(s3_server: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Creates a bucket. The environment has its credentials."""
    name = f"bucket-{os.getpid()}-{next(names)}"
    for variable, value in s3.environment(s3_server).items():
        monkeypatch.setenv(variable, value)
    assert s3.ask(s3_server, "PUT", f"/{name}") == 200
    return f"s3://{name}/some/prefix"
