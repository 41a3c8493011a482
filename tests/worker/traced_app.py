"""Run as a process of its own, with the SDK of OpenTelemetry loaded: prints the spans it made."""

import asyncio
import json
import sys
from contextlib import suppress

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from penstock import Message, Penstock
from penstock.errors import JobFailed
from penstock.model.message import Draft

kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
app = Penstock(sys.argv[1])
batch = asyncio.Event()


@app.task(max_attempts=1)
async def double(x: int) -> int:
    with trace.get_tracer("app").start_as_current_span("inside"):
        return 2 * x


@app.task(max_attempts=1)
def fail() -> None:
    raise ValueError("no")


@app.subscriber("many", batch=10)
async def many(messages: list[Message[int]]) -> None:
    batch.set()


async def main() -> None:
    with trace.get_tracer("app").start_as_current_span("request"):
        doubled, failed = await double.aenqueue(21), await fail.aenqueue()
        await app.apublish(Draft(queue="many", body=b"1"))
    async with await app.worker():
        assert await doubled.aresult(timeout=60) == 42
        with suppress(JobFailed):
            await failed.aresult(timeout=60)
        await batch.wait()
    await app.aclose()


asyncio.run(main())
print(json.dumps([json.loads(span.to_json()) for span in kept.get_finished_spans()]))
