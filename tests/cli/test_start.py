"""What a quick command must not load, and what the package gives all the same."""

import subprocess
import sys

import pytest

import penstock
from tests.cli.consumer import publish
from tests.cli.terminal import Terminal

HEAVY = (
    "structlog", "rich", "importlib.resources", "multiprocessing", "penstock.app.app",
    "penstock.agents", "penstock.worker.worker", "penstock.worker.executors.shell", "tempfile",
    "cronsim", "zoneinfo", "starlette", "uvicorn", "aiohttp", "prometheus_client", "penstock.wire",
    "penstock.broker.policy", "penstock.broker.governance", "penstock.rules.explain",
)  # fmt: skip
MAX_STATUS_MODULES = 108
NOT_FOR_STATUS = (
    "json", "pathlib", "secrets", "shutil", "penstock.artifacts", "penstock.broker.waiting",
    "penstock.rules.access", "penstock.stores.sql.copying", "penstock.stores.sql.search",
    "penstock.stores.sqlite.health",
)  # fmt: skip
LIGHT = (["status"], ["list"], ["enqueue", '{"command":"true"}'], ["worker", "list"])


@pytest.mark.parametrize("words", LIGHT, ids=lambda words: words[0])
def test_a_quick_command_loads_only_what_it_uses(terminal: Terminal, words: list[str]) -> None:
    publish()
    program = (
        "import sys; from penstock.cli.main import main;"
        f"main({words!r}, standalone_mode=False);"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=terminal.folder,
        env=terminal.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stderr.splitlines()[-1] == "[]"


def test_an_app_is_made_without_loading_the_broker() -> None:
    program = (
        "import sys; from penstock import Penstock; Penstock();"
        "print([name for name in ('penstock.broker.local', 'penstock.store', 'cronsim',"
        " 'structlog', 'click', 'asyncio', 'pathlib', 'penstock.artifacts')"
        " if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"


def test_status_loads_few_modules(terminal: Terminal) -> None:
    publish()
    program = (
        "import sys; from penstock.cli.main import main; main(['status'], standalone_mode=False);"
        "ours = [name for name in sys.modules if name.startswith('penstock')];"
        f"spare = [name for name in {NOT_FOR_STATUS!r} if name in sys.modules];"
        "print(len(ours), *spare, file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=terminal.folder,
        env=terminal.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded, *spare = ran.stderr.splitlines()[-1].split()
    assert spare == []
    assert int(loaded) <= MAX_STATUS_MODULES


def test_the_package_gives_every_public_name_when_asked() -> None:
    homes = [name for names in penstock.HOMES.values() for name in names]
    assert sorted(homes) == sorted(penstock.__all__)
    assert all(getattr(penstock, name) is not None for name in penstock.__all__)
    assert set(penstock.__all__) <= set(dir(penstock))


def test_the_package_gives_no_other_name() -> None:
    with pytest.raises(AttributeError, match="'penstock' has no attribute 'Pemstock'"):
        getattr(penstock, "Pemstock")  # noqa: B009
