"""The pytest plugin, as a project that uses Penstock meets it."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

USE = """
import pytest
from penstock.model.message import Draft

@pytest.fixture
def anyio_backend():
    return "asyncio"

@pytest.mark.anyio
async def test_it(penstock_simulation, penstock_clock):
    seen = []
    start = penstock_clock()
    penstock_simulation.handle("default", lambda message: seen.append(message.body))
    await penstock_simulation.broker.publish(Draft(body=b"later", delay=60.0))
    await penstock_simulation.advance("1m")
    assert seen == [b"later"]
    assert penstock_clock() == start + 60_000_000
"""


def run(*arguments: str, where: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)


def test_an_asynchronous_test_gets_a_simulation_and_its_clock(tmp_path: Path) -> None:
    (tmp_path / "test_use.py").write_text(USE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    installed = "penstock" in entry_points(group="pytest11").names
    plugin = [] if installed else ["-p", "penstock.testing.plugin"]
    done = run("-m", "pytest", "-q", *plugin, where=tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_loading_the_plugin_loads_no_simulation(tmp_path: Path) -> None:
    look = (
        "import sys, penstock.testing.plugin; print('penstock.testing.simulation' in sys.modules)"
    )
    assert run("-c", look, where=tmp_path).stdout == "False\n"
