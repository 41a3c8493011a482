"""The lowest versions that pyproject.toml allows work: a core part of the suite runs on them."""

from pathlib import Path

import pytest

from tests.extent import LONG
from tests.install.environment import ROOT, Environment, run

CORE = (
    "tests/unit/test_cron.py",
    "tests/unit/test_entry.py",
    "tests/unit/test_human_page.py",
    "tests/unit/test_routing.py",
    "tests/unit/test_schemas.py",
    "tests/app/test_tasks.py",
    "tests/app/test_arguments.py",
    "tests/app/test_jobs.py",
    "tests/conformance/test_publish.py",
    "tests/conformance/test_settle.py",
    "tests/http/test_client.py",
    "tests/http/test_events.py",
    "tests/cli/test_start.py",
    "tests/cli/test_top.py",
)
# What the tests themselves need, in any version.
TOOLS = (
    "pytest", "pytest-timeout", "pytest-xdist", "anyio", "hypothesis", "pydantic", "pymysql",
    "psycopg[binary]", "sqlalchemy[asyncio]", "moto[server]",
)  # fmt: skip


@LONG
@pytest.mark.timeout(1800)
def test_the_core_of_the_suite_passes_on_the_lowest_versions(tmp_path: Path) -> None:
    lowest = Environment(tmp_path / "venv")
    extras = f"{ROOT}[server,rules,schemas,tui,postgres,mariadb,redis,s3,otel]"
    lowest.install("--resolution", "lowest-direct", "--editable", extras)
    lowest.install(*TOOLS)
    python = lowest.program("python")
    run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE, cwd=ROOT)
