"""The same commands on Redis, what goes wrong with a server, and a password nobody sees."""

from collections.abc import Iterator

import pytest

from tests.cli.terminal import Terminal, until
from tests.servers.places import free_port
from tests.servers.redis import Redis

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
def url(redis_server: Redis) -> Iterator[str]:
    with redis_server.database() as url:
        yield url


@pytest.fixture
def shop(terminal: Terminal, url: str) -> Terminal:
    terminal.environment |= {"PENSTOCK_URL": url, "PENSTOCK_APP": "shop:app", "PYTHONPATH": "."}
    terminal.write("shop.py", SHOP)
    return terminal


def test_a_shell_job_runs_and_its_output_is_shown(shop: Terminal) -> None:
    assert shop.call("enqueue", '{"id":"j1","command":"echo hi"}').out == (
        "enqueued j1 (shell, id 1)\n"
    )
    said = shop.run("worker", "start", "--shell", "--count", 1, "--stop-when-empty")
    assert "completed=1" in said.err
    shown = shop.call("show", "j1", "--json").json
    assert (shown["state"], shown["result"]["exit_code"]) == ("completed", 0)


def test_a_dead_job_is_listed_redriven_and_purged(shop: Terminal) -> None:
    shop.call("enqueue", '{"id":"j1","command":"exit 3","max_retries":1}')
    shop.run("worker", "start", "--shell", "--count", 1, "--stop-when-empty")
    assert "j1" in shop.call("dlq", "list").out
    shop.call("dlq", "retry", "j1")
    shop.run("worker", "start", "--shell", "--count", 1, "--stop-when-empty")
    assert shop.call("show", "j1", "--json").json["state"] == "dead"


def test_workers_are_seen_and_stopped_from_elsewhere(shop: Terminal) -> None:
    shop.call("migrate")
    with shop.start("worker", "start", "shop:app") as worker:
        until(lambda: shop.call("worker", "list", "--json").lines)
        shop.call("worker", "stop")
        until(lambda: worker.poll() is not None)


def test_status_and_doctor_tell_how_the_store_is(shop: Terminal) -> None:
    said = shop.call("status", code=3)
    assert "no store at 'redis://127.0.0.1" in said.err
    shop.call("migrate")
    said = shop.call("status")
    assert ("durability safe" in said.out, said.err) == (True, "")
    told = shop.call("doctor").out
    assert "accepted messages survive a power failure" in told


def test_there_is_nothing_to_migrate_and_another_tool_backs_it_up(shop: Terminal) -> None:
    assert shop.call("migrate", "--plan", "--json").json["to_do"] == ["schema 2"]
    assert shop.call("migrate", "--json").json["done"] == ["schema 2"]
    assert shop.call("migrate", "--json").json["done"] == []
    assert "redis-cli --rdb" in shop.call("backup", "copy.db", code=1).err


def test_a_server_that_is_away_is_named_without_its_password(terminal: Terminal) -> None:
    port = free_port()
    said = terminal.run("status", "--url", f"redis://me:s3cret@127.0.0.1:{port}/0", code=3)
    assert f"redis://127.0.0.1:{port}/0 cannot be reached" in said.err
    assert "s3cret" not in said.err


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://me:s3cret@h/0?durability=no", "durability must be safe, fast or trusted"),
        ("redis://me:s3cret@h/0?nonsense=1", "nonsense"),
        ("redis://me:1@s3cret@h/0", "cannot be read"),
        ("redis://me:s3cret@h:70000/0", "a port is a number up to 65535"),
    ],
)
def test_a_url_that_makes_no_sense_is_told_without_its_password(
    terminal: Terminal, url: str, told: str
) -> None:
    said = terminal.run("status", "--url", url, code=1)
    assert told in said.err
    assert "s3cret" not in said.err
