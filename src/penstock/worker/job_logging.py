"""Adds the job id to log records."""

import logging
from contextvars import ContextVar

from penstock.worker.context import Context

# The current run of this task or thread, or its last one.
running: ContextVar[Context | None] = ContextVar("penstock_running", default=None)


class JobLogFilter(logging.Filter):
    """Adds `job_id` and `job_type` of the running job to log records, or None outside of one."""

    def filter(self, record: logging.LogRecord) -> bool:
        context = running.get()
        inside = context is not None and not context.over
        record.job_id = context.id if inside and context is not None else None
        record.job_type = context.delivery.type if inside and context is not None else None
        return True
