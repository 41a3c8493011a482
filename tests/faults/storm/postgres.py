"""What is particular to the processes of a storm on PostgreSQL: transactions of their own."""

from contextlib import closing
from typing import Any

import asyncpg
import psycopg

from penstock import Context
from tests.faults.storm import holding
from tests.faults.storm.scene import Scene

DEADLINE = 5.0
EFFECT = "public.effect"


def connection(scene: Scene) -> psycopg.Connection:
    """As an application has one of its own, on the way that nobody cuts."""
    return psycopg.connect(scene.url.partition("?")[0], connect_timeout=5)


async def book(url: str, context: Context) -> None:
    """The effect of a run and the end of its message are one."""
    own = await asyncpg.connect(url.partition("?")[0], timeout=DEADLINE, command_timeout=DEADLINE)
    try:
        async with own.transaction():
            await own.execute(f"INSERT INTO {EFFECT} VALUES ($1, $2)", context.id, context.fence)
            await context.acomplete_in(own)
    finally:
        own.terminate()


def open_connection(scene: Scene) -> "closing[Any]":
    return holding.open_when_up(scene, connection, psycopg.OperationalError)


def hold_snapshot(scene: Scene, name: str) -> None:
    """As a backup does: the server may clear away nothing that this one could still see."""
    with open_connection(scene) as own:
        own.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        own.execute("SELECT count(*) FROM penstock.ready")
        holding.stop()
        own.execute("SELECT count(*) FROM penstock.message")


def hold_rows(scene: Scene, name: str) -> None:
    """Stops in the middle of a write that nobody must ever see."""
    with open_connection(scene) as own:
        for table in ("ready", "lease", "scheduled"):
            own.execute(f"DELETE FROM penstock.{table} WHERE id % 2 = 0")
        holding.stop()
        own.rollback()


def hold_uncommitted(scene: Scene, name: str) -> None:
    with open_connection(scene) as own:
        holding.hold_messages(scene, name, own)
