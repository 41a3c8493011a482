"""procrastinate, as its own worker runs it."""

import json

from procrastinate import App, PsycopgConnector

from bench.peers.script import Drain, Fill, main
from bench.workload import BULK, make_bodies

CONCURRENCY = 50
CONNECTIONS = 20
LEFT = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"


def open_app(url: str) -> App:
    return App(connector=PsycopgConnector(conninfo=url, min_size=1, max_size=CONNECTIONS))


async def fill(url: str, count: int, timer: Fill) -> None:
    texts = [{"body": text} for text in make_bodies(BULK)]
    async with open_app(url).open_async() as app:
        await app.schema_manager.apply_schema_async()
        publish = app.configure_task("noop", queue="bench", allow_unknown=True)
        with timer:
            for done in range(0, count, BULK):
                await publish.batch_defer_async(*texts[: count - done])


async def drain(drain: Drain) -> None:
    app = open_app(drain.url)

    @app.task(name="noop", queue="bench")
    async def noop(body: str) -> None:
        json.loads(body)
        drain.run()

    drain.then(lambda: None)
    async with app.open_async():
        await app.run_worker_async(queues=["bench"], concurrency=CONCURRENCY, wait=False)
    while not drain.ended_at:
        drain.all_run.wait(0.1)


if __name__ == "__main__":
    main("procrastinate", LEFT, fill, drain)
