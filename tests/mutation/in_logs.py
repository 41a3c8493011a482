"""Mutations of what is told of failures: tracebacks, logs, outages, and what runs now."""

from tests.mutation.mutation import Mutation, conformance

TRACEBACKS, OUTAGE = "tests/worker/test_tracebacks.py", "tests/unit/test_outage.py"
LOGS, RUNNING_NOW = "tests/cli/test_logs.py", "tests/worker/test_running_now.py"
SETTLE, JOBS = conformance("settle"), "tests/app/test_jobs.py"

TOLD = (
    Mutation("traceback_not_kept", "worker/tracebacks.py", "attach",
             "return replace(verdict, traceback=self.last[2])", "return verdict", TRACEBACKS),
    Mutation("traceback_of_the_worker", "worker/tracebacks.py", "without_worker",
             "kept = stack[calls[-1] :] if calls else list(stack)", "kept = list(stack)",
             TRACEBACKS),
    Mutation("traceback_of_our_own_errors", "worker/tracebacks.py", "format_traceback",
             "if is_explained(error):", "if False:", TRACEBACKS),
    Mutation("huge_error_in_the_traceback", "worker/tracebacks.py", "clip_text",
             "if len(text) <= MAX_ERROR_TEXT", "if True", TRACEBACKS),
    Mutation("causes_left_out", "worker/tracebacks.py", "format_chain",
             "if last.__cause__ is not None:", "if False:", TRACEBACKS),
    Mutation("traceback_loses_its_end", "rules/validation.py", "clip_traceback",
             "tail = text[-MAX_TRACEBACK + 4 :]", "tail = text[: MAX_TRACEBACK - 4]", SETTLE),
    Mutation("lists_carry_tracebacks", "stores/sql/records.py", "get_many", "full: bool = False", "full: bool = True",
             SETTLE),
    Mutation("retried_as_an_error", "worker/run_log.py", "log_settled",
             "elif state in (State.DEAD, State.FAILED):", "elif state is not None:", TRACEBACKS),
    Mutation("retry_as_a_failure", "worker/run_log.py", "log_settled",
             "isinstance(end.error, Retry) or", "False or", TRACEBACKS),
    Mutation("long_error_in_the_log", "worker/run_log.py", "fields", "error[:MAX_LOGGED_ERROR]",
             "error", TRACEBACKS),
    Mutation("every_completion_has_a_line", "worker/run_log.py", "log_completed",
             "for end in ends[:room]:", "for end in ends:", TRACEBACKS),
    Mutation("cancelled_as_failed", "app/job.py", "failure_of",
             "JobCancelled if record.state is State.CANCELLED else JobFailed", "JobFailed", JOBS),
    Mutation("log_without_the_job", "worker/job_logging.py", "filter",
             "inside = context is not None and not context.over", "inside = False", LOGS),
    Mutation("app_log_overruled", "cli/logs.py", "configure_standard_logging",
             'if root.handlers or form == "quiet":', "if False:", LOGS),
    Mutation("outage_line_by_line", "outage.py", "report_failure",
             "outage.next_line_at = now + REPEAT_INTERVAL_S", "outage.next_line_at = now", OUTAGE),
    Mutation("outage_for_each_source", "outage.py", "key_of", "return SHARED", "return source",
             OUTAGE),
    Mutation("removed_file_for_each_source", "outage.py", "key_of",
             "UNUSABLE if isinstance(error, StoreUnusable) else source", "source", OUTAGE),
    Mutation("unusable_until_others_succeed", "outage.py", "_keys_ended_by",
             "source in each.sources", "True", OUTAGE),
    Mutation("late_failure_as_an_outage", "outage.py", "_begin", "max(now, settled_at)", "now",
             OUTAGE),
    Mutation("outage_without_an_end", "outage.py", "_keys_ended_by", "key == SHARED or", "",
             OUTAGE),
    Mutation("run_never_seen_to_begin", "worker/heartbeat.py", "mark_begun", "if contexts:",
             "if False:", RUNNING_NOW),
)  # fmt: skip
