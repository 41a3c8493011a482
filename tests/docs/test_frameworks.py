"""The project of the Django page runs as the page says."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "django_shop"
PLACE = "import shop.tasks; from shop.orders import place_order; place_order('tea')"
FAIL = """
import shop.tasks
from django.db import transaction
from shop.orders import place_order
try:
    with transaction.atomic():
        place_order("coffee")
        raise KeyError
except KeyError:
    pass
"""
CONFIRMED = """
import shop.tasks
from shop.models import Order
print(list(Order.objects.values_list("item", "confirmed")))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROJECT, tmp_path / "project"))


def run(project: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(project: Path, *words: str) -> str:
    return run(project, sys.executable, *words)


def penstock(project: Path, *words: str) -> str:
    return python(project, "-m", "penstock", *words)


def test_the_page_shows_the_files_of_the_project() -> None:
    page = (ROOT / "docs" / "how-to" / "django.md").read_text()
    shown = dict(re.findall(r"```py\n# (shop/\w+\.py)\n(.*?)```", page, re.DOTALL))
    assert set(shown) == {f"shop/{n}.py" for n in ("tasks", "orders", "settings", "tests")}
    assert shown == {name: (PROJECT / name).read_text() for name in shown}


def test_a_row_and_its_job_are_committed_together(project: Path) -> None:
    python(project, "manage.py", "migrate")
    assert "queue orders created" in penstock(project, "migrate", "shop.tasks:queue")
    python(project, "-c", PLACE)
    python(project, "-c", FAIL)
    penstock(project, "worker", "start", "shop.tasks:queue", "--stop-when-empty")
    assert python(project, "-c", CONFIRMED) == "[('tea', True)]\n"


def test_the_tests_of_the_project_pass(project: Path) -> None:
    python(project, "manage.py", "test")
