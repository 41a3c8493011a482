"""Mutations of masking, live events of claims, activity, traces, audit changes and archives."""

from tests.mutation.in_rules import rule

MASKING = "tests/unit/test_masking.py"
HUB = "tests/http/test_hub.py"
CHANGES = "tests/unit/test_audit_changes.py"

ACTIVITY_MUTATIONS = (
    rule("masked_field_is_searched", "rules/masking.py check_filter", "if is_masked(term, entry):",
         "if False:", MASKING),
    rule("masked_field_is_tried_by_a_rule", "rules/masking.py check_condition",
         "if field == root and", "if False and", MASKING),
    rule("parent_of_a_mask_is_searched", "rules/masking.py overlap", "strict=False", "strict=True",
         MASKING),
    rule("index_gets_around_a_mask", "rules/masking.py drop_indices", "if not name.isdecimal()", "",
         MASKING),
    rule("text_body_is_shown", "rules/masking.py mask_json", "return MASKED_JSON", "return body",
         MASKING),
    rule("mask_is_lifted_by_anyone", "rules/masking.py check_new_mask", "- set(mask)",
         "& set()", MASKING),
    rule("lists_are_not_masked", "rules/masking.py mask_value",
         "[mask_value(each, path) if is_nested(each) else each for each in value]", "value", MASKING),
    rule("claims_are_watched_for_nobody", "http/events/lease_watcher.py tick",
         "if not self.hub.wants((CLAIMED, EXTENDED)):", "if False:", HUB),
    rule("claims_before_are_told", "http/events/lease_watcher.py start",
         "for lease in leases:", "for lease in leases[:0]:", HUB),
    rule("claims_are_told_again", "http/events/lease_watcher.py compare",
         "if (each.id, each.fence) not in reported", "", HUB),
    rule("activity_shows_every_queue", "broker/activity/reader.py make_entries",
         "if row.queue_id in self.queues", "",
         "tests/http/test_activity.py::test_activity_is_told_in_pages_with_acts_for_who_may_see_them"),
    rule("activity_skips_a_row", "broker/activity/reader.py read_window", "else low + 1",
         "else low", "activity::test_activity_is_read_over_gaps_in_history"),
    rule("trace_without_causes", "rules/trace.py find_parent", 'cause = meta.causation_id or ""',
         'cause = ""', "activity"),
    rule("unrecorded_cases_are_forgotten", "broker/anomalies.py record_anomalies",
         "raise Busy(", "str(", "live_anomalies"),
    rule("lake_job_may_hang", "http/lake_jobs.py execute", "asyncio.timeout(timeout)",
         "asyncio.timeout(None)", "tests/pipeline/test_lake_jobs.py"),
    rule("secret_is_recorded", "rules/audit_changes.py is_secret", "in SECRETS", "in ()", CHANGES),
    rule("entry_of_any_length", "rules/audit_changes.py encode_bounded",
         "while len(text) > MAX_BYTES:", "while False:", CHANGES),
    rule("batch_of_other_messages", "broker/archive.py find_batch",
         "if batch.first <= id <= batch.last", "", "archive"),
    rule("path_is_told_to_everyone", "broker/archive.py explain_archived", "if local else \"\"",
         "if True else \"\"", "archive"),
    rule("completion_shows_every_queue", "broker/filters.py complete",
         "if each.row.queue_id in queues", "", "filters"),
    rule("completion_shows_masked_errors", "broker/filters.py collect_values",
         "if each.row.queue_id not in hidden:", "if True:", "filters"),
    rule("denial_is_recorded_each_time", "http/auth/denials.py tick",
         "if each not in self.recorded", "", "tests/http/test_denials.py"),
)  # fmt: skip
