"""The same commands on PostgreSQL, what goes wrong with a server, and a password nobody sees."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.cli.terminal import Terminal, until
from tests.servers.places import free_port
from tests.servers.postgres import GUARDED, PASSWORD, Postgres

SECRET = quote(PASSWORD)
SHOP = """
from penstock import Penstock

app = Penstock()

@app.task
def add(a: int, b: int) -> int:
    return a + b

@app.task(max_attempts=1)
def fail() -> None:
    raise ValueError("boom")
"""


@pytest.fixture
def url(postgres_server: Postgres) -> Iterator[str]:
    with postgres_server.database() as url:
        name = url.rpartition("/")[2]
        postgres_server.execute(f"GRANT ALL ON DATABASE {name} TO {GUARDED}")
        yield url.replace("penstock@", f"{GUARDED}:{SECRET}@")


@pytest.fixture
def guarded(terminal: Terminal, url: str) -> Terminal:
    terminal.environment |= {"PENSTOCK_URL": url, "PENSTOCK_APP": "shop:app", "PYTHONPATH": "."}
    terminal.write("shop.py", SHOP)
    return terminal


def hidden(*texts: str) -> bool:
    return not any(secret in text for secret in (PASSWORD, SECRET) for text in texts)


def test_a_shell_job_runs_and_its_output_is_shown(guarded: Terminal) -> None:
    assert guarded.run("enqueue", '{"id":"j1","command":"echo hi"}').out == (
        "enqueued j1 (shell, id 1)\n"
    )
    said = guarded.run("worker", "start", "--shell", "--count", 1, "--stop-when-empty")
    assert "completed=1" in said.err
    shown = guarded.run("show", "j1", "--json").json
    assert (shown["state"], shown["result"]["exit_code"]) == ("completed", 0)
    assert "  hi\n" in guarded.run("show", "j1").out
    assert hidden(said.err, *(str(path) for path in guarded.folder.rglob("*")))


def test_jobs_of_two_stores_in_one_folder_keep_their_output_apart(
    guarded: Terminal, url: str
) -> None:
    words = {"sqlite:///penstock.db": "here", url: "there"}
    for store, word in words.items():
        guarded.run("enqueue", "--command", f"echo {word}", PENSTOCK_URL=store)
        guarded.run("worker", "start", "--shell", "--stop-when-empty", PENSTOCK_URL=store)
    for store, word in words.items():
        shown = guarded.run("show", 1, PENSTOCK_URL=store).out
        assert [each for each in words.values() if f"  {each}\n" in shown] == [word]


def test_workers_are_listed_and_stopped_from_another_terminal(guarded: Terminal) -> None:
    guarded.call("migrate")
    with guarded.start("worker", "start", "--processes", 2) as workers:
        listed = until(lambda: in_pairs(guarded.call("worker", "list", "--json").lines))
        assert {each["state"] for each in listed} == {"running"}
        assert guarded.run("send", "shop.add", 1, 2, "--wait").out == "3\n"
        stopped = guarded.call("worker", "stop")
        assert stopped.out == "2 workers stopped\n"
        assert workers.wait(60) == 0
        _, log = workers.communicate()
    assert log.count("worker started") == log.count("worker stopped") == 2
    assert hidden(log, str(listed), stopped.err)


def in_pairs(lines: list[dict[str, str]]) -> list[dict[str, str]]:
    return lines if len(lines) == 2 else []


def test_a_failed_job_is_found_redriven_and_ended(guarded: Terminal) -> None:
    guarded.run("send", "shop.fail")
    guarded.run("worker", "start", "--stop-when-empty")
    assert guarded.call("dlq", "list", "--json").json["error"] == "ValueError: boom"
    assert guarded.call("redrive", 1).out == "1 redriven\n"
    guarded.call("cancel", 1)
    assert guarded.call("list", "--state", "cancelled", "--json").json["id"] == "1"


def test_what_an_operator_looks_at_and_sets(guarded: Terminal) -> None:
    assert "schema 5" in guarded.call("migrate").out
    checks = guarded.call("doctor", "--json").lines
    assert [check for check in checks if not check["ok"]] == []
    guarded.call("config", "set", "backoff-base", 3)
    assert guarded.call("config", "get", "backoff-base").out == "3.0\n"
    guarded.call("queue", "create", "orders", "--preset", "relay")
    assert ["orders", "active"] in [row[:2] for row in guarded.call("queue", "list").rows()]
    assert guarded.call("status", "--json").json["durability"] == "safe"
    assert guarded.call("schedule", "list").out == "no schedules\n"
    assert "scheduler" in guarded.call("agents").out
    assert hidden(str(checks))


def test_a_backup_is_left_to_pg_dump(guarded: Terminal) -> None:
    guarded.call("migrate")
    said = guarded.call("backup", "copy.db", code=1)
    assert "back it up with pg_dump" in said.err
    assert not (guarded.folder / "copy.db").exists()


def read_one_line(terminal: Terminal, url: str, code: int) -> str:
    said = terminal.call("status", "--url", url, code=code)
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "s3cret" not in said.err
    return said.err


def test_a_server_that_refuses_us_is_told_in_one_line(
    terminal: Terminal, postgres_server: Postgres
) -> None:
    wrong = postgres_server.url("postgres", f"{GUARDED}:s3cret")
    assert 'password authentication failed for user "guarded"' in read_one_line(terminal, wrong, 3)
    missing = postgres_server.url("nowhere", "penstock:s3cret")
    assert 'database "nowhere" does not exist' in read_one_line(terminal, missing, 3)


@pytest.mark.parametrize("words", [["status"], ["enqueue", '{"command":"x"}'], ["worker", "start"]])
def test_a_server_that_is_down_is_told_in_one_line(terminal: Terminal, words: list[str]) -> None:
    url = f"postgresql://me:s3cret@127.0.0.1:{free_port()}/db"
    said = terminal.run(*words, "--url", url, code=3)
    assert "/db cannot be reached" in said.err
    assert (said.err.count("\n"), "s3cret" in said.err) == (1, False)


WRONG = {
    "postgresq://me:s3cret@db/x": "'postgresq://db/x' does not begin with sqlite:",
    "mysql+x://me:s3cret@db/x": "'mysql+x://db/x' does not begin with",
    "me:s3cret@db/x": "'db/x' does not begin with",
    "host=db password=s3cret": "'...' does not begin with",
    "sqlite://me:s3cret@db/x": "'sqlite://db/x' has a host",
    "postgresql://me:/s3cret@db/x": "'postgresql://db/x' cannot be read: a port is a number",
    "postgresql://me:1/s3cret@db/x": "in a password, write / ? # @ as %2F %3F %23 %40",
    "postgresql://me:1?s3cret@db/x": "'postgresql://...' cannot be read",
    "postgresql://me:1#s3cret@db/x": "'postgresql://db/x' cannot be read",
    "postgresql://me:1@s3cret@db/x": "'postgresql://db/x' cannot be read",
    "postgresql://me:s3cret@db:70000/x": "a port is a number up to 65535",
    "postgresql://me:s3cret@[::1/x": "'postgresql://[::1/x' cannot be read",
    "postgresql://db/x?password=s3cret&pool_size=many": "pool_size must be a number from 2 to 1000",
    "postgresql://me:s3cret@db/x?sslmode=some": "`sslmode` parameter must be one of",
}


@pytest.mark.parametrize("url", WRONG)
def test_a_wrong_url_is_told_without_its_password(terminal: Terminal, url: str) -> None:
    assert WRONG[url] in read_one_line(terminal, url, 1)


def test_a_missing_driver_is_told_with_what_to_install(terminal: Terminal) -> None:
    reason = "No module named 'asyncpg'"
    terminal.write("asyncpg.py", f"raise ModuleNotFoundError({reason!r}, name='asyncpg')")
    said = terminal.run("status", "--url", "postgresql://me:s3cret@db/x", code=1, PYTHONPATH=".")
    assert said.err == f"penstock: {reason}: install penstock[postgres]\n"


def test_a_bench_says_that_it_measures_no_server(terminal: Terminal) -> None:
    said = terminal.call("bench", "--url", "postgresql://me:s3cret@db/x", code=1)
    assert said.err == "penstock: bench uses a temporary SQLite file and does not accept --url\n"
