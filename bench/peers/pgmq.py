"""pgmq: it has no worker, so this uses the loop of its documentation with batches of 100.

Its SQL is installed from its Python package; the extension itself is not in Debian.
"""

import json

import psycopg
from pgmq.async_queue import PGMQueue
from pgmq.install import get_embedded_install_sql

from bench.peers.script import Drain, Fill, main
from bench.workload import BULK, make_bodies

QUEUE = "bench"
BATCH = 100
LEASE = 60
LEFT = f"SELECT count(*) FROM pgmq.q_{QUEUE}"


async def open_queue(url: str) -> PGMQueue:
    queue = PGMQueue(conn_string=url, pool_size=2, init_extension=False)
    await queue.init()
    return queue


async def fill(url: str, count: int, timer: Fill) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA IF NOT EXISTS pgmq")
        connection.execute(get_embedded_install_sql())
    queue = await open_queue(url)
    await queue.create_queue(QUEUE)
    messages = [json.loads(text) for text in make_bodies(BULK)]
    with timer:
        for done in range(0, count, BULK):
            await queue.send_batch(QUEUE, messages[: count - done])
    await queue.close()


async def drain(drain: Drain) -> None:
    queue = await open_queue(drain.url)
    drain.then(lambda: None)
    while messages := await queue.read_batch(QUEUE, vt=LEASE, batch_size=BATCH):
        for _ in messages:
            drain.run()
        await queue.delete_batch(QUEUE, [message.msg_id for message in messages])
    await queue.close()
    while not drain.ended_at:
        drain.all_run.wait(0.1)


if __name__ == "__main__":
    main("pgmq", LEFT, fill, drain)
