"""A storm of real processes breaks no promise."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.extent import ALL
from tests.faults.storm.ground import Weather
from tests.faults.storm.mariadb_ground import WEATHER as MARIADB
from tests.faults.storm.postgres_ground import WEATHER as POSTGRES
from tests.faults.storm.redis_ground import WEATHER as REDIS
from tests.faults.storm.sqlite_ground import WEATHER as SQLITE
from tests.faults.storm.strikes import Strike, plan
from tests.servers import mariadb, postgres, redis
from tests.servers.server import Unavailable

ROOT = Path(__file__).parents[2]
# Faults rage for so long; starting, draining and judging take as long again on a busy machine.
SECONDS = 120 if ALL else 12
WEATHERS = pytest.mark.parametrize(
    "weather", [SQLITE, POSTGRES, MARIADB, REDIS], ids=["sqlite", "postgres", "mariadb", "redis"]
)
SERVERS: dict[str, Callable[[], object]] = {
    "postgres": postgres.find_programs,
    "mariadb": lambda: mariadb.find("mariadbd"),
    "redis": lambda: redis.find("redis-server"),
}


def is_installed(store: str) -> bool:
    try:
        SERVERS[store]()
    except Unavailable:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("store", ["sqlite", "postgres", "mariadb", "redis"])
def test_a_storm_breaks_no_promise(store: str) -> None:
    # A developer may do without; the build may not.
    if store in SERVERS and not is_installed(store) and not os.environ.get("CI"):
        pytest.skip(f"{store} is not installed")
    # How late a reclaim is depends on the machine: `./dev storm` measures it.
    limits = ["--seconds", str(SECONDS), "--reclaim-within", "60"]
    command = [sys.executable, "-m", "tests.faults.storm", store, *limits]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # Shown by pytest when it fails: the seed, the report, and where the histories are kept.
    print(ran.stderr, ran.stdout)
    assert ran.returncode == 0, f"{ran.stderr}{ran.stdout}"


def make_plan(weather: Weather, seed: int, seconds: float = 60.0) -> list[Strike]:
    return plan(seed, seconds, ["a", "b"], weather.great, weather.small)


@WEATHERS
def test_a_seed_is_a_plan(weather: Weather) -> None:
    first, again, other = (make_plan(weather, seed) for seed in (7, 7, 8))
    assert first == again != other


@WEATHERS
def test_a_plan_has_every_kind_of_fault(weather: Weather) -> None:
    for seed in range(20):
        kinds = {strike.kind for strike in make_plan(weather, seed, 20.0)}
        assert kinds == {*weather.great, *weather.small}
