"""What workers and servers log, what they leave to the app, and how an outage is told."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal, until
from tests.servers.postgres import Postgres
from tests.servers.server import Unavailable

SHOP = """
import logging
import time
from pathlib import Path

from penstock import Penstock

app = Penstock()
log = logging.getLogger("shop")

@app.task
def greet(name: str) -> None:
    log.debug("looking for %s", name)
    log.info("hello %s", name)

@app.task(executor="process")
def greet_apart(name: str) -> None:
    log.info("hello %s", name)

@app.task(max_attempts=1)
def fail() -> None:
    {}["missing"]

@app.task
def wait_for(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.02)
"""
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) \S")


@pytest.fixture
def shop(terminal: Terminal) -> Terminal:
    terminal.environment |= {"PENSTOCK_APP": "shop:app", "PYTHONPATH": "."}
    terminal.write("shop.py", SHOP)
    return terminal


def work(shop: Terminal, *words: object) -> str:
    return shop.run("worker", "start", "--stop-when-empty", *words).err


def test_every_line_has_a_date_a_zone_and_a_level(shop: Terminal) -> None:
    shop.run("send", "shop.greet", "ada")
    lines = work(shop).splitlines()
    assert [line for line in lines if not LINE.match(line)] == []
    assert any(" INFO run completed: id=1 handler=shop.greet attempt=1 seconds=" in line
               for line in lines)  # fmt: skip


@pytest.mark.parametrize("task", ["greet", "greet_apart"])
def test_what_the_app_logs_comes_with_the_id_of_the_job(shop: Terminal, task: str) -> None:
    shop.run("send", f"shop.{task}", "ada")
    (line,) = [line for line in work(shop).splitlines() if "hello" in line]
    assert line.endswith(f" INFO hello ada: logger=shop id=1 handler=shop.{task}")


def test_what_the_app_logs_is_json_among_json(shop: Terminal) -> None:
    shop.run("send", "shop.greet", "ada")
    lines = [json.loads(line) for line in work(shop, "--log", "json").splitlines()]
    (line,) = [line for line in lines if line["event"] == "hello ada"]
    assert (line["level"], line["logger"], line["id"]) == ("info", "shop", 1)
    assert line["handler"] == "shop.greet"


def test_an_app_that_configures_its_log_has_it_its_own_way(shop: Terminal) -> None:
    own = 'logging.basicConfig(level="INFO", format="OWN %(message)s")\n'
    shop.write("shop.py", SHOP.replace("app = Penstock()\n", f"app = Penstock()\n{own}"))
    shop.run("send", "shop.greet", "ada")
    lines = work(shop).splitlines()
    assert [line for line in lines if "hello" in line] == ["OWN hello ada"]


def test_the_log_level_is_an_option_a_variable_or_a_setting(shop: Terminal) -> None:
    shop.run("send", "shop.greet", "ada")
    assert "DEBUG looking for ada" in work(shop, "--log-level", "debug")
    shop.run("send", "shop.greet", "ada")
    shop.environment["PENSTOCK_LOG_LEVEL"] = "warning"
    assert work(shop) == ""
    del shop.environment["PENSTOCK_LOG_LEVEL"]
    shop.write("penstock.toml", 'log_level = "error"\n')
    assert work(shop) == ""
    assert "log-level" in shop.call("config", "show").out
    assert "worker started" in work(shop, "--log-level", "info")


def test_a_failure_is_logged_and_shown_with_its_traceback(shop: Terminal) -> None:
    shop.run("send", "shop.fail")
    logged = work(shop)
    assert " ERROR run failed: state=dead id=1 handler=shop.fail attempt=1 seconds=" in logged
    assert f'    File "{shop.folder}/shop.py", line ' in logged
    assert '{}["missing"]' in logged
    shown = shop.call("show", 1).out
    assert "traceback of attempt 1, " in shown
    assert f'  File "{shop.folder}/shop.py", line ' in shown
    assert shown.endswith("  KeyError: 'missing'\n")
    (row,) = shop.call("show", 1, "--json").json["timeline"]
    assert row["traceback"].endswith("KeyError: 'missing'")


def test_what_runs_now_is_listed_with_its_worker(shop: Terminal, tmp_path: Path) -> None:
    flag = tmp_path / "go-on"
    shop.run("send", "shop.wait_for", str(flag))
    with shop.start("worker", "start", "--stop-when-empty") as worker:
        running = until(lambda: begun(shop))
        (row,) = shop.call("list", "--state", "claimed").out.splitlines()[1:]
        assert "claimed, running" in row
        assert running["consumer"] in row
        assert running["begun_at"] >= running["claimed_at"]
        assert "(running for " in shop.call("show", 1).out
        assert shop.call("worker", "list", "--json").json["id"] == running["consumer"]
        flag.touch()
        assert worker.wait(60) == 0


def begun(shop: Terminal) -> dict[str, str] | None:
    lines = shop.call("list", "--state", "claimed", "--json").lines
    return next((line for line in lines if line["begun_at"]), None)


@pytest.fixture
def database(postgres_server: Postgres) -> Iterator[Postgres]:
    """One that may be stopped; the shared one says whether there can be any."""
    try:
        own = Postgres()
    except Unavailable as reason:
        pytest.skip(str(reason))
    with own:
        yield own


@pytest.mark.parametrize("words", [("worker", "start"), ("serve", "--port", "0")])
def test_an_outage_is_told_when_it_begins_and_when_it_ends(
    shop: Terminal, database: Postgres, words: tuple[str, ...]
) -> None:
    with (
        database.database() as url,
        open(shop.folder / "log", "w", encoding="utf-8") as log,
        shop.start(*words, stderr=log, PENSTOCK_URL=url) as process,
    ):
        until(lambda: " started" in read_log(shop))
        database.stop()
        until(lambda: "store unreachable" in read_log(shop))
        database.start()
        until(lambda: "store recovered" in read_log(shop))
        process.terminate()
        assert process.wait(60) == 0
    errors = [line for line in read_log(shop).splitlines() if " ERROR " in line]
    assert [line for line in errors if "ERROR store unreachable: source=" not in line] == []
    assert " WARNING store recovered: seconds=" in read_log(shop)
    # One more for every half minute that a busy machine takes.
    assert len(errors) <= 4


def read_log(shop: Terminal) -> str:
    return (shop.folder / "log").read_text()


def test_without_uvloop_a_failed_run_is_logged_alone(shop: Terminal) -> None:
    """An ImportError must not be the context of every error."""
    (shop.folder / "uvloop.py").write_text("raise ImportError('no uvloop here')")
    shop.call("enqueue", '{"id": "bad", "command": "exit 3", "max_retries": 1}')
    logged = shop.run("worker", "start", "--shell", "--stop-when-empty", PYTHONPATH=".").err
    assert "CommandFailed: exit 3" in logged
    assert "Traceback" not in logged
