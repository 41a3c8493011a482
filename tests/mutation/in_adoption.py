"""Mutations of what newcomers meet first: setup, options, results, batches, test helpers."""

from tests.mutation.mutation import Mutation, conformance

NEWCOMERS = "tests/app/test_newcomers.py"
SETUP = "tests/app/test_setup.py"
SIMULATED = "tests/agents/test_sync_simulation.py"

ADOPTION = (
    Mutation("sessions_stay_open_at_exit", "client/transport.py", "close_at_exit",
             "loop.is_running()", "False", "tests/http/test_app.py"),
    Mutation("unique_compares_bodies", "rules/drafts.py", "make_dedupe",
             'dedup.window is not None and compared == "body"', 'compared == "body"', conformance("dedup")),
    Mutation("any_worker_removes_schedules", "app/setup.py", "find_removed",
             "each.declared_in in here and", "",
             f"{SETUP}::test_schedules_of_operators_and_of_other_modules_stay"),
    Mutation("settings_of_operators_are_reset", "app/setup.py", "find_differences",
             "if name in given or getattr(preset, name) != getattr(default, name)", "",
             f"{SETUP}::test_setup_applies_settings_that_changed_and_leaves_the_others_alone"),
    Mutation("a_detector_without_a_name_is_lost", "app/app.py", "detector",
             "if callable(name):", "if False:", "tests/conformance/test_detectors.py"),
    Mutation("workers_keep_silent_about_changed_settings", "app/app.py", "prepare",
             "await report_changed_settings(broker, self.declared, self.scope)", "pass",
             "tests/cli/test_workers.py::test_a_worker_warns_of_settings_that_differ_from_the_code"),
    Mutation("batches_do_not_wait", "worker/executors/batches.py", "fill",
             "while 0 < len(self.buffer) < self.capacity:", "while False:",
             f"{NEWCOMERS}::test_a_batch_waits_for_more_messages"),
    Mutation("any_result_is_kept", "worker/codec.py", "encode_checked",
             "if self.kind is not Any:", "if False:",
             f"{NEWCOMERS}::test_a_result_of_another_type_is_refused_at_the_worker"),
    Mutation("aclose_leaves_the_sync_half", "app/enqueue.py", "aclose",
             "await asyncio.to_thread(self.close)", "pass",
             "tests/app/test_sync.py::test_aclose_closes_both_halves"),
    Mutation("handlers_run_on_the_loop", "testing/apps.py", "run",
             "return await call(lambda: run_plain(handler, context))",
             "return run_plain(handler, context)", SIMULATED),
    Mutation("simulated_apps_use_connections", "app/enqueue.py", "find_connection",
             "if self.connections.simulated is not None:", "if False:",
             f"{SIMULATED}::test_a_connection_has_no_effect_in_a_simulation"),
)  # fmt: skip
