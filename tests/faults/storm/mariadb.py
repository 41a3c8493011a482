"""What is particular to the processes of a storm on MariaDB: transactions of their own."""

import asyncio
from contextlib import closing
from typing import Any

import asyncmy
import pymysql

from penstock import Context
from tests.faults.storm import holding
from tests.faults.storm.scene import Scene
from tests.servers.mariadb import place

DEADLINE = 5
EFFECT = "effect"


def connection(scene: Scene) -> pymysql.Connection:
    """As an application has one of its own, on the way that nobody cuts."""
    return pymysql.connect(
        **place(scene.url), connect_timeout=DEADLINE, read_timeout=DEADLINE, write_timeout=DEADLINE
    )


async def book(url: str, context: Context) -> None:
    """The effect of a run and the end of its message are one."""
    async with asyncio.timeout(DEADLINE):
        own = await asyncmy.connect(**place(url))
        try:
            await own.begin()
            async with own.cursor() as cursor:
                await cursor.execute(f"INSERT INTO {EFFECT} VALUES ({context.id}, {context.fence})")
            await context.acomplete_in(own)
            await own.commit()
        finally:
            own.close()


def open_connection(scene: Scene) -> "closing[Any]":
    return holding.open_when_up(scene, connection, pymysql.err.OperationalError)


def hold_snapshot(scene: Scene, name: str) -> None:
    """As a backup does: the server may clear away nothing that this one could still see."""
    with open_connection(scene) as own:
        own.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        own.query("SELECT count(*) FROM penstock_ready")
        holding.stop()
        own.query("SELECT count(*) FROM penstock_message")


def hold_rows(scene: Scene, name: str) -> None:
    """Stops in the middle of a write that nobody must ever see."""
    with open_connection(scene) as own:
        own.query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        for table in ("ready", "lease", "scheduled"):
            own.query(f"DELETE FROM penstock_{table} WHERE id % 2 = 0")
        holding.stop()
        own.rollback()


def hold_uncommitted(scene: Scene, name: str) -> None:
    with open_connection(scene) as own:
        holding.hold_messages(scene, name, own)
