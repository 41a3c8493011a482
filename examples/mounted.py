"""A FastAPI app with routes of its own, and Penstock mounted under /queue.

    uvicorn examples.mounted:app --timeout-graceful-shutdown 10
    curl -X POST localhost:8000/orders/7
    curl -X POST localhost:8000/queue/v1/claim -d '{"queues": [{"queue": "mail"}], "wait": 20}'

There is no daemon besides it: the agents run in this process. The host decides the lifespan,
because FastAPI does not run the lifespan of mounted apps.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from penstock import Penstock
from penstock.http import create_app

URL = os.environ.get("PENSTOCK_URL", "sqlite:///mounted.db")
queue = create_app(URL)
tasks = Penstock(URL)


@tasks.task(queue="mail")
def confirm(order: int) -> None: ...


@asynccontextmanager
async def lifespan(host: FastAPI) -> AsyncIterator[None]:
    async with queue.running():
        yield
    await tasks.aclose()


app = FastAPI(lifespan=lifespan)
app.mount("/queue", queue)


@app.post("/orders/{order}", status_code=202)
async def place_order(order: int) -> dict[str, object]:
    job = await confirm.aenqueue(order)
    return {"order": order, "job": job.id}
