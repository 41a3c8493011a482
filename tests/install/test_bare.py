"""`pip install penstock` is small, and enough for tasks, workers and the command line."""

from pathlib import Path

import pytest

from tests.install.environment import ROOT, Environment, find_uv, run

pytestmark = pytest.mark.timeout(600)

TASKS = """
from penstock import Penstock

app = Penstock()


@app.task(queue="mail", max_attempts=5)
def send(to: str) -> str:
    return f"sent to {to}"


if __name__ == "__main__":
    print(send.enqueue("ada@example.org").status())
"""

RULE = """
name = "vip"
when = "message.priority > 1"
do = [{ set = { priority = 1 } }]
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("bare")
    run(find_uv(), "build", "--wheel", "--quiet", "--out-dir", str(folder), str(ROOT))
    (wheel,) = folder.glob("*.whl")
    environment = Environment(folder / "venv")
    environment.install(str(wheel))
    return environment


def test_a_bare_installation_has_few_packages(bare: Environment) -> None:
    assert bare.names() - {"typing-extensions"} == {
        "click",
        "cronsim",
        "msgspec",
        "penstock",
        "structlog",
    }


def test_a_bare_installation_runs_a_job(bare: Environment, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    assert run(bare.program("python"), "tasks.py", cwd=tmp_path) == "ready\n"
    run(bare.program("penstock"), "worker", "start", "tasks:app", "--stop-when-empty", cwd=tmp_path)
    assert "sent to" not in run(bare.program("penstock"), "status", cwd=tmp_path)
    shown = run(bare.program("penstock"), "show", "1", "--json", cwd=tmp_path)
    assert '"state":"completed"' in shown.replace(" ", "")


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("serve",), "server"),
        (("up",), "server"),
        (("status", "--url", "postgresql://localhost/work"), "postgres"),
        (("status", "--url", "mariadb://localhost/work"), "mariadb"),
        (("status", "--url", "redis://localhost"), "redis"),
        (("rule", "add", "rule.toml"), "rules"),
        (("schema", "add", "order", "order.json"), "schemas"),
        (("top",), "tui"),
        (("pipeline", "report", "--lake", "lake"), "pipeline"),
        (("worker", "start", "tasks:app", "--url", "http://127.0.0.1:1"), "client"),
    ],
)
def test_a_missing_extra_is_named(
    bare: Environment, tmp_path: Path, words: tuple[str, ...], extra: str
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "rule.toml").write_text(RULE)
    (tmp_path / "order.json").write_text("{}")
    said = bare.fail("penstock", *words, cwd=tmp_path)
    assert f"install penstock[{extra}]" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("from penstock.client import Client", "client"),
        ("from penstock.http import create_app", "server"),
    ],
)
def test_an_import_that_needs_an_extra_is_an_import_error_that_names_it(
    bare: Environment, tmp_path: Path, code: str, extra: str
) -> None:
    caught = f"try:\n    {code}\nexcept ImportError as error:\n    print(error)"
    said = run(bare.program("python"), "-c", caught, cwd=tmp_path)
    assert said.endswith(f": install penstock[{extra}]\n")
