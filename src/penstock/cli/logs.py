"""Log lines of workers and servers on stderr, as text or JSON."""

import logging
import os
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import structlog

from penstock import tracing
from penstock.cli.output import cut, escape_control, to_one_line
from penstock.cli.settings import LogLevel
from penstock.worker.job_logging import JobLogFilter

Form = Literal["text", "json", "quiet"]
MAX_VALUE_IN_TEXT = 300
MAX_VALUE_IN_JSON = 4_000
# Tracebacks are shortened elsewhere and must not be cut in the middle.
TRACEBACK = "exception"


def configure(form: Form, level: LogLevel = "info") -> None:
    """Configure structlog for Penstock's own events."""
    least = logging.CRITICAL if form == "quiet" else logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            stamp_time,
            structlog.processors.format_exc_info,
            cut_values,
            to_json if form == "json" else to_text,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    export_traces()


def configure_standard_logging(form: Form, level: LogLevel) -> None:
    """Configure the log of the app and its libraries, unless the app has done so."""
    root = logging.getLogger()
    if root.handlers or form == "quiet":
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(JobLogFilter())
    handler.setFormatter(StandardFormatter(form))
    root.addHandler(handler)
    root.setLevel(level.upper())


class StandardFormatter(logging.Formatter):
    """Formats records of the standard library like Penstock's own events."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.render = to_json if form == "json" else to_text

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, Any] = {"event": record.getMessage(), "logger": record.name}
        if (job_id := getattr(record, "job_id", None)) is not None:
            event |= {"id": job_id, "handler": getattr(record, "job_type", None)}
        event |= {"level": record.levelname.lower(), "timestamp": format_timestamp(record.created)}
        if record.exc_info:
            event[TRACEBACK] = self.formatException(record.exc_info)
        return self.render(None, "", cut_values(None, "", event))


def export_traces() -> None:
    """Export traces if an OTLP endpoint is set."""
    if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") and not tracing.export():
        structlog.get_logger().warning(
            "tracing_unavailable",
            advice="OTEL_EXPORTER_OTLP_ENDPOINT is set; run pip install 'penstock[otel]'",
        )


def stamp_time(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    event["timestamp"] = format_timestamp(datetime.now(UTC).timestamp())
    return event


def format_timestamp(seconds: float) -> str:
    """Format in UTC to the millisecond: 2026-11-17T20:51:07.120Z"""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"


def cut_values(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in event.items():
        if isinstance(value, str) and name != TRACEBACK:
            event[name] = cut(value, MAX_VALUE_IN_JSON)
    return event


def to_json(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    return msgspec.json.encode(dict(event), enc_hook=repr).decode()


def to_text(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    """Render an event: 2026-11-17T20:51:07.120Z INFO run completed: id=12 seconds=0.31"""
    head = f"{event.pop('timestamp')} {str(event.pop('level')).upper()}"
    words = str(event.pop("event"))
    # Penstock's events are names with underscores. Those of other loggers are sentences.
    words = to_one_line(words) if "logger" in event else words.replace("_", " ")
    traceback = event.pop(TRACEBACK, None)
    pairs = " ".join(f"{name}={format_value(value)}" for name, value in event.items())
    text = f"{head} {words}" + (f": {pairs}" if pairs else "")
    return f"{text}\n{indent(traceback)}" if traceback else text


def indent(traceback: str) -> str:
    return "\n".join(f"    {escape_control(line)}" for line in traceback.splitlines())


def format_value(value: Any) -> str:
    text = cut(to_one_line(value), MAX_VALUE_IN_TEXT)
    return text if text and " " not in text else repr(text)
