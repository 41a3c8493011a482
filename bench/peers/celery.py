"""Celery on Redis, or on PostgreSQL, which kombu reaches through SQLAlchemy."""

import json
from contextlib import suppress
from typing import Any

from celery import Celery
from celery.worker import state

from bench.peers.script import Drain, Fill, count_by_statement, main
from bench.workload import BULK, make_bodies

LEFT = "SELECT count(*) FROM kombu_message WHERE visible"
LISTED, UNACKED = "celery", "unacked"
OPTIONS = ["--pool=solo", "--loglevel=CRITICAL", "--without-gossip", "--without-mingle"]


def make_tasks(url: str, run: Any) -> tuple[Celery, Any]:
    app = Celery("bench", broker=url.replace("postgresql:", "sqla+postgresql+psycopg:"))
    app.conf.update(
        task_ignore_result=True,
        task_acks_late=True,
        worker_enable_remote_control=False,
        worker_redirect_stdouts=False,
        worker_prefetch_multiplier=128,
        broker_connection_retry_on_startup=True,
    )
    return app, app.task(name="noop")(run)


def nothing(body: str) -> None: ...


def fill(url: str, count: int, timer: Fill) -> None:
    app, noop = make_tasks(url, nothing)
    texts = make_bodies(BULK)
    with app.producer_pool.acquire(block=True) as producer, timer:
        for number in range(count):
            noop.apply_async(args=(texts[number % BULK],), producer=producer)


def drain(drain: Drain) -> None:
    def run(body: str) -> None:
        json.loads(body)
        drain.run()

    def stop() -> None:
        state.should_stop = True

    app, _ = make_tasks(drain.url, run)
    drain.then(stop)
    with suppress(SystemExit):
        app.worker_main(["worker", *OPTIONS])


def count_left(url: str) -> int:
    if not url.startswith("redis:"):
        return count_by_statement(LEFT)(url)
    from redis import Redis

    with Redis.from_url(url) as client:
        return int(client.llen(LISTED)) + int(client.hlen(UNACKED))


if __name__ == "__main__":
    main("celery", count_left, fill, drain)
