"""The same commands on MariaDB, and what goes wrong with its server."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.cli.terminal import Terminal, until
from tests.cli.test_postgres import SHOP, hidden, in_pairs
from tests.servers.mariadb import GUARDED, PASSWORD, MariaDB
from tests.servers.places import free_port

SECRET = quote(PASSWORD)


@pytest.fixture
def url(mariadb_server: MariaDB) -> Iterator[str]:
    with mariadb_server.database() as url:
        yield url.replace("penstock@", f"{GUARDED}:{SECRET}@")


@pytest.fixture
def guarded(terminal: Terminal, url: str) -> Terminal:
    terminal.environment |= {"PENSTOCK_URL": url, "PENSTOCK_APP": "shop:app", "PYTHONPATH": "."}
    terminal.write("shop.py", SHOP)
    return terminal


def test_a_shell_job_runs_and_its_output_is_shown(guarded: Terminal) -> None:
    guarded.call("enqueue", '{"id":"j1","command":"echo hi"}')
    said = guarded.run("worker", "start", "--shell", "--count", 1, "--stop-when-empty")
    assert "completed=1" in said.err
    shown = guarded.call("show", "j1", "--json").json
    assert (shown["state"], shown["result"]["exit_code"]) == ("completed", 0)
    assert hidden(said.err, *(str(path) for path in guarded.folder.rglob("*")))


def test_workers_are_listed_and_stopped_from_another_terminal(guarded: Terminal) -> None:
    guarded.call("migrate")
    with guarded.start("worker", "start", "--processes", 2) as workers:
        listed = until(lambda: in_pairs(guarded.call("worker", "list", "--json").lines))
        assert guarded.run("send", "shop.add", 1, 2, "--wait").out == "3\n"
        stopped = guarded.call("worker", "stop")
        assert stopped.out == "2 workers stopped\n"
        assert workers.wait(60) == 0
        _, log = workers.communicate()
    assert log.count("worker started") == log.count("worker stopped") == 2
    assert hidden(log, str(listed), stopped.err)


def test_a_failed_job_is_found_redriven_and_ended(guarded: Terminal) -> None:
    guarded.run("send", "shop.fail")
    guarded.run("worker", "start", "--stop-when-empty")
    assert guarded.call("dlq", "list", "--json").json["error"] == "ValueError: boom"
    assert guarded.call("redrive", 1).out == "1 redriven\n"
    guarded.call("cancel", 1)
    assert guarded.call("list", "--state", "cancelled", "--json").json["id"] == "1"


def test_what_an_operator_looks_at(guarded: Terminal) -> None:
    assert "schema 3" in guarded.call("migrate").out
    checks = guarded.call("doctor", "--json").lines
    assert [check for check in checks if not check["ok"]] == []
    assert guarded.call("status", "--json").json["durability"] == "safe"
    assert "scheduler" in guarded.call("agents").out
    said = guarded.call("backup", "copy.db", code=1)
    assert "back it up with mariadb-dump" in said.err
    assert hidden(str(checks), said.err)


def test_a_server_that_is_down_is_told_in_one_line(terminal: Terminal) -> None:
    url = f"mariadb://me:s3cret@127.0.0.1:{free_port()}/db"
    said = terminal.run("status", "--url", url, code=3)
    assert "/db cannot be reached" in said.err
    assert (said.err.count("\n"), "s3cret" in said.err) == (1, False)


@pytest.mark.parametrize(
    ("module", "options", "extra"),
    [("asyncmy", "", "mariadb"), ("redis", "?wake=redis://x", "redis")],
)
def test_a_missing_driver_is_told_with_what_to_install(
    terminal: Terminal, guarded: Terminal, url: str, module: str, options: str, extra: str
) -> None:
    reason = f"No module named {module!r}"
    terminal.write(f"{module}.py", f"raise ModuleNotFoundError({reason!r}, name={module!r})")
    said = guarded.run("queue", "create", "work", "--url", url + options, code=1)
    assert said.err == f"penstock: {reason}: install penstock[{extra}]\n"
