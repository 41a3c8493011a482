"""Logs one line per run, with the traceback if it failed."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from structlog.typing import FilteringBoundLogger

from penstock.model.message import Park, Release, Settlement, State
from penstock.worker.ack_policy import Cancelled, Retry, format_error
from penstock.worker.completer import RunEnd
from penstock.worker.context import Context
from penstock.worker.tracebacks import format_traceback

log: FilteringBoundLogger = structlog.get_logger()
# Applies to completed runs. Every failed run is logged.
MAX_LINES_PER_SECOND = 100
MAX_LOGGED_ERROR = 1_000


class RunLog:
    """Logs the outcome of runs. `names` returns the handler's name of a run.

    Completed runs are logged only if `completions` is set, as worker processes do.
    """

    def __init__(self, names: Callable[[Context], str]) -> None:
        self.names = names
        self.completions = False
        self.second = 0.0
        self.lines = self.left_out = 0

    def log_completed(self, ends: Sequence[RunEnd]) -> None:
        if not self.completions:
            return
        now = time.monotonic()
        if now - self.second >= 1.0:
            self.log_left_out(now)
        room = max(0, MAX_LINES_PER_SECOND - self.lines)
        for end in ends[:room]:
            # A failed run that is acked anyway was logged when it failed.
            if end.error is None:
                log.info("run_completed", **self.fields(end.context))
        self.lines += min(room, len(ends))
        self.left_out += max(0, len(ends) - room)

    def log_left_out(self, now: float) -> None:
        """Logs how many completed runs were left out in the last second."""
        if self.left_out:
            log.info(
                "runs_completed", suppressed=self.left_out, seconds=round(now - self.second, 1)
            )
        self.second, self.lines, self.left_out = now, 0, 0

    def log_settled(self, end: RunEnd, state: State | None) -> None:
        """Logs a settled run. `state` is None if the lease was lost."""
        if isinstance(end.verdict, Release | Park):
            return
        fields = self.fields(end.context, error_text(end.verdict, end.error))
        if state is State.CANCELLED or isinstance(end.error, Cancelled):
            log.info("run_cancelled", **fields)
        elif state in (State.DEAD, State.FAILED):
            log.error("run_failed", state=state.value, **fields, **traceback_of(end.verdict))
        elif isinstance(end.error, Retry) or (end.error is None and end.context.settled):
            log.info("retry_requested", **fields)
        else:
            word = "lease lost" if state is None else state.value
            log.warning("run_failed", state=word, **fields, **traceback_of(end.verdict))

    def log_ignored(self, context: Context, error: BaseException) -> None:
        """Logs the error of a run whose message is acked regardless."""
        trace = format_traceback(error)
        shown = {} if trace is None else {"exception": trace}
        log.warning(
            "run_failed", state=State.COMPLETED.value, **self.fields(context, format_error(error)),
            **shown,
        )  # fmt: skip

    def fields(self, context: Context, error: str | None = None) -> dict[str, Any]:
        fields = {"id": context.id, "handler": self.names(context), "attempt": context.attempt,
                "seconds": round(context.seconds, 3)}  # fmt: skip
        return fields if error is None else {**fields, "error": error[:MAX_LOGGED_ERROR]}


def error_text(verdict: Settlement | None, error: BaseException | None) -> str | None:
    text = getattr(verdict, "error", None)
    return format_error(error) if text is None and error is not None else text


def traceback_of(verdict: Settlement | None) -> dict[str, str]:
    trace = getattr(verdict, "traceback", None)
    return {} if trace is None else {"exception": trace}
