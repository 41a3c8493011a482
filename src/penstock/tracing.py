"""OpenTelemetry tracing from publish to run, across processes.

Without the OpenTelemetry SDK nothing is loaded or done.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.model.message import Draft, Leased

if TYPE_CHECKING:
    from opentelemetry.trace import Link, SpanKind, Tracer

SDK = "opentelemetry.sdk.trace"


def is_enabled() -> bool:
    return SDK in sys.modules


def get_tracer() -> "Tracer":
    from opentelemetry import trace

    return trace.get_tracer("penstock")


@contextmanager
def trace_publish(drafts: Sequence[Draft]) -> Iterator[list[Draft]]:
    """Traces a publish, and adds its traceparent to drafts that have none."""
    from opentelemetry.trace import SpanKind

    queues = sorted({str(draft.queue) for draft in drafts})
    with start_span("publish", ",".join(queues[:3]), SpanKind.PRODUCER, len(drafts)):
        here = get_traceparent()
        yield [
            msgspec.structs.replace(draft, traceparent=here)
            if draft.traceparent is None and here is not None
            else draft
            for draft in drafts
        ]


@contextmanager
def trace_run(messages: Sequence[Leased], queue: str) -> Iterator[None]:
    """Traces a run as a child of its publish. A batch is linked to each publish instead."""
    from opentelemetry.trace import SpanKind

    first = messages[0]
    parent = parse_traceparent(first.meta.traceparent) if len(messages) == 1 else None
    links = [] if len(messages) == 1 else make_links(messages)
    ids = ",".join(str(each.id) for each in messages[:10])
    more = {
        "messaging.message.id": ids,
        "penstock.type": first.type,
        "penstock.attempt": first.attempts + 1,
    }
    with start_span("process", queue, SpanKind.CONSUMER, len(messages), parent, links, more):
        yield


@contextmanager
def start_span(
    verb: str,
    queue: str,
    kind: "SpanKind",
    count: int,
    parent: Any = None,
    links: "Sequence[Link]" = (),
    more: dict[str, Any] | None = None,
) -> Iterator[None]:
    """Starts a span. An exception is recorded as its outcome."""
    attributes = {
        "messaging.system": "penstock",
        "messaging.operation.type": verb,
        "messaging.destination.name": queue,
        "messaging.batch.message_count": count,
        **(more or {}),
    }
    with get_tracer().start_as_current_span(
        f"{verb} {queue}", parent, kind, attributes, links=list(links)
    ):
        yield


def get_traceparent() -> str | None:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(carrier)
    return carrier.get("traceparent")


def parse_traceparent(traceparent: str | None) -> Any:
    """Returns the parent context, or None to start a new trace."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    if traceparent is None:
        return None
    return TraceContextTextMapPropagator().extract({"traceparent": traceparent})


def make_links(messages: Sequence[Leased]) -> "list[Link]":
    from opentelemetry.trace import Link, get_current_span

    spans = [
        get_current_span(parse_traceparent(each.meta.traceparent)).get_span_context()
        for each in messages
        if each.meta.traceparent is not None
    ]
    return [Link(span) for span in spans if span.is_valid]


def export() -> bool:
    """Exports traces to OTEL_EXPORTER_OTLP_ENDPOINT. Returns False without the SDK."""
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        return False
    provider = TracerProvider(resource=Resource.create({"service.name": "penstock"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return True
