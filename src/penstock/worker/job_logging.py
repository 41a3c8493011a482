"""Which run a log record belongs to."""

import logging
from contextvars import ContextVar

from penstock.worker.context import Context

# The run that this task or thread works on; the last one, once it is over.
running: ContextVar[Context | None] = ContextVar("penstock_running", default=None)


class JobLogFilter(logging.Filter):
    """Gives every log record `job_id` and `job_type`: of the job that logs, else None."""

    def filter(self, record: logging.LogRecord) -> bool:
        context = running.get()
        inside = context is not None and not context.over
        record.job_id = context.id if inside and context is not None else None
        record.job_type = context.delivery.type if inside and context is not None else None
        return True
