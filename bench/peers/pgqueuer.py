"""pgqueuer, as its own worker runs it."""

import json

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers.script import Drain, Fill, main
from bench.workload import BULK, make_bodies

BATCH = 100
LEFT = "SELECT count(*) FROM pgqueuer"


async def fill(url: str, count: int, timer: Fill) -> None:
    queries = Queries(AsyncpgDriver(await asyncpg.connect(url)))
    await queries.install()
    texts = [text.encode() for text in make_bodies(BULK)]
    with timer:
        for done in range(0, count, BULK):
            some = texts[: count - done]
            await queries.enqueue(["noop"] * len(some), list(some), [0] * len(some))


async def drain(drain: Drain) -> None:
    queuer = PgQueuer.from_asyncpg_connection(await asyncpg.connect(drain.url))

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        json.loads(job.payload or b"")
        drain.run()

    drain.then_set(queuer.shutdown)
    await queuer.run(batch_size=BATCH)


if __name__ == "__main__":
    main("pgqueuer", LEFT, fill, drain)
