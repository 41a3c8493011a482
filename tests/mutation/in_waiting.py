"""Mutations of waits: fences, holds, nudges, steps, signals and their bounds."""

from tests.mutation.mutation import Mutation, conformance

HOLDS = conformance("waiting")
RULES = "tests/unit/test_waiting.py"
RUNS = "tests/agents/test_steps.py"
FAN_IN = conformance("fan_in")
TREE = conformance("cancel_tree")
LARGE = conformance("large_workflows")
TOO_OFTEN = conformance("waiting::test_a_message_that_waits_too_often_for_its_queue_is_dead")
LATER_STEPS = conformance("waiting::test_later_steps_of_a_run_are_stored_once_under_its_fence")
OTHER_HOLD = conformance("waiting::test_a_signal_does_not_resume_a_message_with_another_hold")
SIGNAL_EVENT = conformance("waiting::test_the_event_of_a_signal_is_stored_with_it")
RECEIVERS = conformance("waiting::test_steps_that_wait_for_the_same_signal_are_left_to_their_run")
OVERTAKEN = conformance("waiting::test_a_signal_does_not_overtake_an_earlier_one")
REMOVED_STEP = conformance("human::test_the_state_of_a_removed_step_is_deleted")
COMMITTED = "tests/worker/test_transaction_steps.py"
WEEKS = "tests/agents/test_weeks.py"
EVENTS = "tests/http/test_wait_events.py"
LETTERS = "tests/http/test_human_notifier.py"
RESUME = "test_a_signal_and_the_resume_are_told_once"
RETURN = "test_a_listener_who_comes_back_hears_what_was_decided_meanwhile"


def code(name: str, file: str, place: str, old: str, new: str, where: str = HOLDS) -> Mutation:
    return Mutation(f"wait_{name}", file, place, old, new, where)


WAITING = (
    code("leaves_no_nudge", "stores/sql/waiting.py", "wait",
         'await tx.run("nudge_add", held_id=asked.id)', "pass"),
    code("loses_its_steps", "stores/sql/waiting.py", "wait",
         "await put_step(tx, asked.id, asked.fence, settle_due(step, holds, tx.now))", "pass"),
    code("end_nudges_nobody", "stores/sql/keys.py", "finalize", "if flags & Flag.AWAITED:",
         "if False:"),
    code("end_leaves_its_holds", "stores/sql/keys.py", "finalize", "if flags & Flag.HELD:",
         "if False:"),
    code("resumes_too_early", "stores/sql/look.py", "look_at", "elif all(verdicts):", "elif True:"),
    code("needs_no_dependency", "stores/sql/look.py", "look_at", "if False in verdicts:",
         "if False:"),
    code("cancel_of_a_workflow_gives_up", "broker/waiting/workflows.py", "cancel",
         "range(DOCUMENT_SAVE_ATTEMPTS)", "range(1)", "tests/conformance/test_workflows.py"),
    code("stays_held", "stores/sql/look.py", "resume", 'await tx.run("leave_held", ids=encoded)',
         "pass"),
    code("ignores_a_failure_while_edges_are_open", "stores/sql/look.py", "settle_edges",
         "return set(full).union(*failed)", "return set(full)", FAN_IN),
    code("for_any_is_a_wait_for_all", "rules/waiting.py", "waits_for_all",
         'return policy in ("all", "settled")', "return True", FAN_IN),
    code("set_of_ends_nudges_nobody", "stores/sqlite/verbs.py", "finalize_completed",
         "if awaited:", "if False:", FAN_IN),
    code("completion_settles_no_edge", "stores/postgres/statements.sql", "complete_awaited",
         "WHERE ended.awaited", "WHERE false AND ended.awaited", FAN_IN),
    code("signal_ends_other_holds", "stores/sql/steps.py", "resume_signalled",
         '!= [("signal", draft.name)]:', "== []:", OTHER_HOLD),
    code("signal_ends_other_holds_at_once", "stores/postgres/statements.sql", "signal_held",
         "(kind <> 'signal' OR name <> :name)", "false", OTHER_HOLD),
    code("signal_is_received_by_any_step", "stores/postgres/statements.sql", "signal_held",
         "HAVING count(*) = 1", "HAVING count(*) > 0", RECEIVERS),
    code("signal_overtakes_an_earlier_one", "stores/postgres/statements.sql", "signal_held",
         "WHERE message_id = :id AND name = :name AND NOT consumed)", "WHERE false)", OVERTAKEN),
    code("event_of_a_signal_is_lost", "stores/sql/steps.py", "signal", "if draft.event:",
         "if False:", SIGNAL_EVENT),
    code("inbox_keeps_states_for_ever", "agents/human_reminder.py", "_forget_removed", "if gone:",
         "if False:", REMOVED_STEP),
    code("finds_edges_of_any_state_open", "stores/postgres/statements.sql", "edges_open",
         "AND state IS NULL", "", FAN_IN),
    code("later_step_needs_no_fence", "stores/postgres/statements.sql", "step_save_leased",
         "l.id = :id AND l.fence = :fence AND", "l.id = :id AND", LATER_STEPS),
    code("later_step_leaves_its_signal", "stores/postgres/statements.sql", "step_save_leased",
         "WHERE id = :consumes AND", "WHERE false AND id = :consumes AND", LATER_STEPS),
    code("fan_out_is_not_awaited", "stores/postgres/statements.sql", "publish_awaited",
         "{AWAITED} FROM written", "0 FROM written", FAN_IN),
    code("step_is_overwritten", "stores/sql/steps.py", "save_step",
         "if found is not None and found.done:", "if False:"),
    code("signal_is_stored_twice", "stores/sql/steps.py", "signal", "if draft.key is not None:",
         "if False:"),
    code("signal_is_not_consumed", "stores/sql/steps.py", "save_step",
         "if item.consumes is not None:", "if False:"),
    code("counters_go_on", "rules/waiting.py", "decide_wait",
         "new = facts.recorded or request.records", "new = False", RULES),
    code("waits_for_ever", "rules/waiting.py", "decide_wait", "if facts.waits >= max_waits:",
         "if False:", RULES),
    code("limit_of_the_queue_is_ignored", "broker/waiting/waits.py", "_suspend_once",
         "queue.settings.max_waits", "1_000", TOO_OFTEN),
    code("tree_takes_messages_of_others", "broker/waiting/cancel_tree.py", "read_children",
         "if record.message.meta.parent_id in parents", "if True", TREE),
    code("tree_stops_at_children", "broker/waiting/cancel_tree.py", "_list_open",
         "while level:", "if level:", TREE),
    code("tree_needs_no_right", "broker/waiting/cancel_tree.py", "_may_cancel",
         "check_allowed(self.admin, queue.scope.name, queue.name)", "pass",
         "tests/http/test_settle_rights.py"),
    code("human_steps_outlive_a_cancel", "broker/messages.py", "cancel",
         "if record.state is State.SCHEDULED:", "if False:", TREE),
    code("version_is_not_in_the_type", "app/setup.py", "make_type",
         "return name if version == 1 else", "return name if version else",
         "tests/app/test_tasks.py"),
    code("url_takes_any_number_of_requests", "http/handlers/waiting.py", "send_signal_by_token",
         "call.limit_token(token)", "pass", "tests/http/test_waiting.py"),
    code("forgets_steps_silently", "broker/waiting/waits.py", "redrive_from",
         'note_changes({"steps": dropped}, {"steps": []})', "pass",
         "tests/http/test_settle_rights.py"),
    code("signal_is_received_twice", "worker/steps.py", "pick_signal",
         "self.received.add(signal.id)", "pass", RUNS),
    code("large_workflow_runs_early", "broker/waiting/workflow_build.py", "make_entry",
         "after if node.after else After(ids=(self.gate,))", "after if node.after else None",
         LARGE),
    code("large_workflow_stays_closed", "broker/waiting/workflow_build.py", "publish",
         "await open_gate(self.service, flow)", "pass", LARGE),
    code("building_lasts_for_ever", "agents/workflow_follower.py", "_recount",
         "if now - flow.created_at >= BUILDING_S * MICROS_PER_SECOND:", "if False:", LARGE),
    code("gate_is_a_parent", "broker/waiting/waits.py", "read_parents",
         "if len(edges) == 1 and await self._is_gate(edges[0].awaited_id):", "if False:", LARGE),
    code("for_itself", "broker/waiting/waits.py", "_suspend_once",
         "refuse_own_key(lease, request.children)", "pass", RUNS),
    code("for_a_key_of_another_queue", "broker/waiting/waits.py", "refuse_own_key",
         "(child.queue_id, child.ordering_key) == (lease.queue_id, own)",
         "child.ordering_key == own", RUNS),
    code("gets_a_result_that_is_gone", "worker/step_calls.py", "make_outcome",
         "if found.result is None:", "if False:", RUNS),
    code("has_no_reason_over_http", "wire/runs.py", "read_wait_reason",
         'return f"signal:{hold.name}"', "return sent.reason", "tests/http/test_runs.py"),
    code("spins", "rules/waiting.py", "count_quick", "count, claimed_at = count + 1, next_claim",
         "count, claimed_at = 0, next_claim", RULES),
    code("may_be_swallowed", "worker/suspension.py", "judge_steps",
         "return None if isinstance(error, TimedOut) else SettleReject(SWALLOWED)", "return None",
         RUNS),
    code("step_of_another_kind", "worker/steps.py", "find",
         "if record is not None and record.kind != kind:", "if False:", RUNS),
    code("duplicate_child_ends_unnoticed", "stores/sql/holds.py", "flag_awaited", "if ids:",
         "if False:", FAN_IN),
    code("end_is_missed_in_a_snapshot", "agents/scheduler.py", "_search_missed",
         "self.search_from = await self.store.nudge_missed(self.search_from) or 0", "pass",
         "tests/postgres/test_missed_ends.py"),
    code("committed_step_runs_again", "worker/steps.py", "find_committed", "if not self.complete:",
         "if False:", COMMITTED),
    code("simulation_is_a_day_late", "testing/simulation.py", "_resume",
         "return (await self.store.look()).resumed > 0", "return False", WEEKS),
    code("steps_of_others_are_told", "http/handlers/events.py", "is_addressed",
         "caller.subject in audience.users", "True", f"{EVENTS}::test_steps_of_others_are_not_told"),
    code("resume_is_forgotten", "http/events/wait_tail.py", "note_waits",
         "self.waiting.setdefault(row.id, row.fence or 0)",
         "self.waiting[row.id] = row.fence or 0", f"{EVENTS}::{RESUME}"),
    code("event_is_told_twice", "http/events/wait_tail.py", "send_stored",
         "self.sent = set(found)", "pass", f"{EVENTS}::{RESUME}"),
    code("cancelled_wait_resumes", "http/events/wait_tail.py", "has_run_on",
         "record.state not in (State.CANCELLED, State.EXPIRED)", "True", f"{EVENTS}::{RESUME}"),
    code("letter_is_sent_by_two_servers", "agents/human_notifier.py", "send_due",
         "if not await notices.save(id, replace(notice, due_at=now + SENDING_MICROS), version):",
         "if False:", LETTERS),
    code("quick_step_is_not_sent", "agents/human_notifier.py", "find_new",
         "for id in sorted(recent - known):", "for id in ():", LETTERS),
    code("links_for_every_webhook", "agents/human_notifier.py", "make_links",
         "if not webhook.links or not self.public_url:", "if not self.public_url:", LETTERS),
    code("reminders_end_with_an_escalation", "rules/human_notifications.py", "note_accepted",
         "reminded=state.reminded", "reminded=max(known.reminded, state.reminded)", LETTERS),
    code("requester_hears_nothing", "broker/waiting/live_events.py", "make_audience",
         "users.add(step.requester)", "pass", f"{EVENTS}::{RETURN}"),
)  # fmt: skip
