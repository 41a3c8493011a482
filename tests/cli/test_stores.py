"""status, agents, migrate, doctor, backup and bench, and stores that cannot be used."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from penstock.agents import make_agents
from penstock.broker.local import Broker
from penstock.cli.commands.status import AGENTS
from penstock.cli.context import ROUTES
from penstock.runner import make_identity
from tests.cli.consumer import kill, on_store, publish
from tests.cli.terminal import Terminal

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"


def test_status_counts_and_says_what_to_do(terminal: Terminal) -> None:
    publish()
    kill()
    publish()
    publish(delay=60)
    terminal.call("queue", "pause", "default")
    terminal.call("enqueue", '{"command":"true"}')
    said = terminal.call("status")
    assert ["default", "paused", "1", "1", "0", "1", "0"] in said.rows()
    assert said.out.splitlines()[4:] == [
        "0 workers, durability safe",
        "no worker serves shell; run `penstock worker start`",
        "no worker serves default; run `penstock worker start MODULE:APP`",
        "1 dead letter; run `penstock dlq list`",
        "paused: default; run `penstock queue resume`",
    ]


def test_the_json_of_status(terminal: Terminal) -> None:
    publish()
    assert terminal.call("status", "--json").json == {
        "queues": [
            {
                "queue": "default",
                "state": "active",
                "scope_paused": False,
                "shell": False,
                "served": False,
                "ready": 1,
                "scheduled": 0,
                "claimed": 0,
                "dead": 0,
                "completed": 0,
                "failed": 0,
                "cancelled": 0,
                "expired": 0,
            }
        ],
        "ended_counted": 10_000,
        "truncated": False,
        "workers": 0,
        "durability": "safe",
    }


def test_every_agent_is_listed_with_how_often_it_runs(terminal: Terminal) -> None:
    publish()

    async def work(broker: Broker) -> dict[str, float]:
        agents = make_agents(broker.store, make_identity())
        return {agent.name: agent.every for agent in agents}

    lines = terminal.call("agents", "--json").lines
    assert {each["agent"]: each["every"] for each in lines} == AGENTS
    units = {"s": 1, "min": 60}
    told = {name: float(text.split()[0]) * units[text.split()[1]] for name, text in AGENTS.items()}
    assert told == on_store(work)
    assert "scheduler" in terminal.call("agents").out


def test_migrate_makes_the_store_and_says_its_schema(terminal: Terminal) -> None:
    assert terminal.call("migrate", "--plan", "--json").json["to_do"][0] == "migration 1 core"
    assert list(terminal.folder.iterdir()) == []
    first, *_, last = terminal.call("migrate").out.splitlines()
    assert first == "migration 1 core"
    assert last.startswith("schema")
    assert (terminal.folder / "penstock.db").exists()
    assert terminal.call("migrate", "--plan").out == "nothing to do\n"
    again = terminal.call("migrate", "--json").json
    assert again == {"done": [], "schema": last}


def test_a_healthy_store_is_well(terminal: Terminal) -> None:
    publish()
    checks = terminal.call("doctor", "--json").lines
    assert all(check["ok"] for check in checks)
    assert {"durability", "schema", "integrity", "leases"} <= {check["name"] for check in checks}


def test_a_doctor_that_finds_something_says_so_with_exit_code_1(terminal: Terminal) -> None:
    publish()
    said = terminal.call("doctor", "--url", "sqlite:///penstock.db?durability=fast", code=1)
    assert "WARN  durability" in said.out


def test_the_doctor_looks_at_the_place_of_artifacts(terminal: Terminal) -> None:
    publish()
    found = {check["name"]: check for check in terminal.call("doctor", "--json").lines}
    assert found["artifacts"]["text"].startswith(str(terminal.folder / "penstock.db.artifacts"))
    (terminal.folder / "penstock.db.artifacts").write_text("in the way")
    assert "WARN  artifacts" in terminal.call("doctor", code=1).out


def test_a_backup_is_a_store(terminal: Terminal) -> None:
    publish(name="mine")
    assert terminal.call("backup", "copy.db", "--json").json["bytes"] > 0
    copy = terminal.call("list", "--json", "--url", "sqlite:///copy.db").json
    assert copy["name"] == "mine"
    assert "already exists" in terminal.call("backup", "copy.db", code=1).err
    assert (
        "directory 'nowhere' does not exist"
        in terminal.call("backup", "nowhere/copy.db", code=1).err
    )


def test_bench_measures(terminal: Terminal) -> None:
    measured = terminal.call("bench", "--messages", 200, "--json").json
    assert all(rate > 0 for rate in measured.values())
    assert "claim and complete" in terminal.call("bench", "--messages", 200).out
    assert list(terminal.folder.iterdir()) == []


READS = (["status"], ["list"], ["dlq", "list"], ["worker", "list"], ["queue", "list"],
         ["schedule", "list"], ["agents"], ["config", "get"])  # fmt: skip


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_looking_at_no_store_makes_none(terminal: Terminal, words: list[str]) -> None:
    said = terminal.call(*words, code=3)
    path = str(terminal.folder / "penstock.db")
    assert said.err == (
        f"penstock: no store at {path!r}; set --url or PENSTOCK_URL to use another\n"
    )
    assert list(terminal.folder.iterdir()) == []


CHANGES = (["show", "1"], ["cancel", "1"], ["redrive", "1"], ["dlq", "retry", "1"], ["doctor"],
           ["queue", "pause", "default"], ["worker", "stop"], ["backup", "x"])  # fmt: skip


@pytest.mark.parametrize("words", CHANGES, ids=" ".join)
def test_working_on_no_store_is_refused(terminal: Terminal, words: list[str]) -> None:
    assert "no store at" in terminal.call(*words, code=3).err
    assert list(terminal.folder.iterdir()) == []


APP = """
from penstock import Penstock

app = Penstock("sqlite:///shop.db")
app.queue("mail", max_attempts=3)


@app.task(queue="mail", cron="0 3 * * *")
def nightly() -> None: ...
"""


def test_migrate_sets_up_what_an_app_declares(terminal: Terminal) -> None:
    terminal.write("shop.py", APP)
    assert terminal.run("migrate", "shop:app").out.splitlines()[-2:] == [
        "queue mail created",
        "schedule shop.nightly: 0 3 * * *",
    ]
    terminal.write("shop.py", APP.replace("max_attempts=3", "max_attempts=7"))
    changed = terminal.run("migrate", "shop:app", "--json").json["done"]
    assert changed == ["queue mail: max_attempts 3 -> 7"]
    assert terminal.run("migrate", "shop:app").out == "nothing to do\n"
    assert "MODULE:APP" in terminal.run("migrate", "shop:app", "--plan", code=2).err
    assert (terminal.folder / "shop.db").exists()


def test_looking_adds_no_tables_to_the_database_of_another_program(terminal: Terminal) -> None:
    with closing(sqlite3.connect("penstock.db")) as database:
        database.execute("CREATE TABLE song (title TEXT)")
    content = (terminal.folder / "penstock.db").read_bytes()
    assert "no store at" in terminal.call("show", "1", code=3).err
    terminal.call("status", code=3)
    assert [path.name for path in terminal.folder.iterdir()] == ["penstock.db"]
    assert (terminal.folder / "penstock.db").read_bytes() == content


def test_a_store_of_a_newer_version_is_exit_code_3(terminal: Terminal) -> None:
    publish()
    with closing(sqlite3.connect("penstock.db")) as database, database:
        database.execute("UPDATE penstock_migration SET floor = 9999")
    said = terminal.call("status", code=3)
    assert "upgrade Penstock" in said.err
    assert terminal.run("status", code=3).err == said.err
    assert '"code":"STORE_TOO_NEW"' in terminal.call("status", "--json", code=3).err


def test_a_file_that_is_no_store_is_exit_code_3(terminal: Terminal) -> None:
    terminal.write("penstock.db", "not a database at all, and long enough to be looked at" * 100)
    said = terminal.call("status", code=3)
    assert "penstock.db" in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("words", [["status"], ["list"], ["show", "1"], ["agents"]])
def test_a_file_opened_for_reading_can_be_looked_at(terminal: Terminal, words: list[str]) -> None:
    publish()
    url = "sqlite:///penstock.db?mode=ro"
    assert terminal.call(*words, "--url", url).out == terminal.call(*words).out
    assert "integrity" in terminal.call("doctor", "--url", url).out
    said = terminal.call("cancel", 1, "--url", url, code=3)
    assert (
        said.err == "penstock: cannot write 'penstock.db': attempt to write a readonly database\n"
    )


def test_a_file_of_another_user_is_opened_for_reading(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish()
    refused = os.W_OK
    monkeypatch.setattr(os, "access", lambda path, mode: mode != refused)
    assert ["default", "active", "1", "0", "0", "0", "0"] in terminal.call("status").rows()
    assert "cannot write" in terminal.call("cancel", 1, code=3).err


@pytest.mark.parametrize(
    ("url", "code", "told"),
    [
        ("mongodb://x/y", 1, "does not begin with sqlite:"),
        ("sqlite://host/x.db", 1, "has a host"),
        ("sqlite:///x.db?speed=high", 1, "no option named speed"),
        ("sqlite:////nowhere/at/all/x.db", 3, "no directory"),
    ],
)
def test_a_wrong_url_is_named(terminal: Terminal, url: str, code: int, told: str) -> None:
    said = terminal.call("enqueue", '{"command":"x"}', "--url", url, code=code)
    assert told in said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(("words", "route"), ROUTES.items())
def test_the_url_of_a_server_is_refused_with_its_route(
    terminal: Terminal, words: str, route: str
) -> None:
    given = ["1"] if "{" in route else []
    said = terminal.call(*words.split(), *given, "--url", "http://me:s3cret@127.0.0.1:1", code=1)
    assert "'http://127.0.0.1:1' is a server; apps and workers accept it" in said.err
    assert said.err.endswith(f"the server answers GET {route}\n")
    assert f"| `GET` | `{route}` |" in REFERENCE.read_text()


def test_the_url_of_a_server_without_such_a_route_is_refused(terminal: Terminal) -> None:
    said = terminal.call("doctor", "--url", "https://127.0.0.1:1", code=1)
    assert said.err.endswith("the server lists its routes at /docs\n")
