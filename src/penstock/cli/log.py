"""What a worker says of itself: one line an event, to stderr, for people or for programs."""

import logging
import os
import sys
from collections.abc import MutableMapping
from typing import Any, Literal

import structlog

from penstock import tracing
from penstock.cli.output import cut, one_line

LONGEST = 300


def configure(kind: Literal["text", "json", "quiet"]) -> None:
    level = logging.CRITICAL if kind == "quiet" else logging.INFO
    render = structlog.processors.JSONRenderer() if kind == "json" else line
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    trace()


def trace() -> None:
    """If it is said where traces go, they go there."""
    if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") and not tracing.export():
        structlog.get_logger().warning(
            "no_traces", so="OTEL_EXPORTER_OTLP_ENDPOINT is set: pip install penstock[otel]"
        )


def line(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    """20:51:07 run failed: id=12 handler=shell error='exit 1'"""
    time = str(event.pop("timestamp"))[11:19]
    level, words = event.pop("level"), str(event.pop("event")).replace("_", " ")
    traceback = event.pop("exception", None)
    pairs = " ".join(f"{name}={shown(value)}" for name, value in event.items())
    urgent = "" if level == "info" else f"{str(level).upper()} "
    text = f"{time} {urgent}{words}" + (f": {pairs}" if pairs else "")
    return f"{text}\n{traceback}" if traceback else text


def shown(value: Any) -> str:
    text = cut(one_line(value), LONGEST)
    return text if text and " " not in text else repr(text)
