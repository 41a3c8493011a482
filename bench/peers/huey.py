"""huey with its SQL storage. A task is deleted before it runs: a crash loses it."""

import json
from typing import Any

from huey.contrib.sql_huey import SqlHuey

from bench.peers.script import Drain, Fill, main
from bench.workload import BULK, make_bodies

LEFT = "SELECT count(*) FROM task"


def make_tasks(url: str, run: Any) -> tuple[Any, Any]:
    huey = SqlHuey("bench", database=url, results=False)
    return huey, huey.task(name="noop")(run)


def fill(url: str, count: int, timer: Fill) -> None:
    _, noop = make_tasks(url, lambda body: None)
    texts = make_bodies(BULK)
    with timer:
        for number in range(count):
            noop(texts[number % BULK])


def drain(drain: Drain) -> None:
    def run(body: str) -> None:
        json.loads(body)
        drain.run()

    huey, _ = make_tasks(drain.url, run)
    # One thread, because more of them block each other.
    consumer = huey.create_consumer(workers=1, periodic=False)
    drain.then(lambda: None)
    consumer.start()
    while not drain.ended_at:
        drain.all_run.wait(0.1)
    consumer.stop()


if __name__ == "__main__":
    main("huey", LEFT, fill, drain)
