"""FastStream with its SQL broker and no archive, its fastest setting."""

import asyncio
import json
import logging
from typing import Any

from faststream import FastStream
from faststream_sqlbroker import SqlBroker, SqlBrokerSchemaConfig
from faststream_sqlbroker.sqlbroker.message import SqlBrokerMessageState
from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    DateTime,
    Enum,
    LargeBinary,
    MetaData,
    String,
    Table,
    func,
)
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from bench.peers.script import Drain, Fill, main
from bench.workload import BULK, make_bodies

QUEUE = "bench"
LEFT = "SELECT count(*) FROM message"
TABLES = MetaData()
Table(
    "message",
    TABLES,
    Column("id", BigInteger, primary_key=True),
    Column("queue", String(255), nullable=False, index=True),
    Column("headers", JSON),
    Column("payload", LargeBinary, nullable=False),
    Column(
        "state",
        Enum(SqlBrokerMessageState),
        nullable=False,
        index=True,
        server_default=SqlBrokerMessageState.PENDING.name,
    ),
    Column("attempts_count", BigInteger, nullable=False, server_default="0"),
    Column("deliveries_count", BigInteger, nullable=False, server_default="0"),
    Column("created_at", DateTime, nullable=False, server_default=func.now()),
    Column("first_attempt_at", DateTime),
    Column("next_attempt_at", DateTime, nullable=False, server_default=func.now(), index=True),
    Column("last_attempt_at", DateTime),
    Column("acquired_at", DateTime),
)


def connect(url: str) -> tuple[AsyncEngine, SqlBroker]:
    engine = create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:"), pool_size=10)
    return engine, SqlBroker(
        engine=engine, schema=SqlBrokerSchemaConfig(message_archive_table_name=None)
    )


async def fill(url: str, count: int, timer: Fill) -> None:
    engine, broker = connect(url)
    async with engine.begin() as connection:
        await connection.run_sync(TABLES.create_all)
    await broker.connect()
    messages = [json.loads(text) for text in make_bodies(BULK)]
    with timer:
        for done in range(0, count, BULK):
            await broker.publish_batch(*messages[: count - done], queue=QUEUE)
    await engine.dispose()


async def drain(drain: Drain) -> None:
    logging.disable(logging.CRITICAL)
    _, broker = connect(drain.url)

    @broker.subscriber(
        queues=[QUEUE],
        max_workers=50,
        fetch_batch_size=500,
        max_not_processed_factor=2.0,
        min_fetch_interval=0.005,
        max_fetch_interval=0.02,
        flush_interval=0.05,
        retain_in_archive_on_ack=False,
        retain_in_archive_on_reject=False,
    )
    async def noop(body: dict[str, Any]) -> None:
        drain.run()

    app, stopping = FastStream(broker, logger=None), asyncio.Event()
    drain.then_set(stopping)
    await app.start()
    await stopping.wait()
    await app.stop()


if __name__ == "__main__":
    main("faststream-sqlbroker", LEFT, fill, drain)
