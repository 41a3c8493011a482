"""Mutations of the worker: what it claims, and what it runs beside what."""

from tests.mutation.mutation import Mutation

PREFETCH = "tests/worker/test_prefetch.py"
SUSPECTS = "tests/worker/test_suspects.py"

WORKER = (
    Mutation("suspects_by_age", "worker/quarantine.py", "take_next",
             "key=lambda each: get_context(each.place).delivery.deliveries",
             "key=lambda each: each.since",
             f"{SUSPECTS}::test_the_suspect_with_the_fewest_deliveries_runs_first"),
    Mutation("suspect_before_the_last_is_stored", "worker/worker.py", "finish_run",
             "self.finished += 1", "self.finished += 1; self.quarantine.release_turn(context)",
             f"{SUSPECTS}::test_a_suspect_begins_when_the_end_of_the_last_one_is_stored"),
    Mutation("lost_suspect_keeps_its_slot", "worker/worker.py", "drop_suspect",
             "self.notify_room()", "pass",
             f"{SUSPECTS}::test_a_retry_that_was_lost_before_it_began_makes_room_for_another"),
    Mutation("nacks_by_hand_know_no_strategy", "worker/worker.py", "judge_end",
             "elif isinstance(verdict, Nack):", "elif False:",
             "tests/worker/test_faststream.py::test_a_nack_by_hand_follows_the_strategy"),
    Mutation("long_jobs_claimed_ahead", "worker/prefetch.py", "adapt",
             "self.run_seconds > self.horizon", "False",
             f"{PREFETCH}::test_a_worker_claims_ahead_by_what_it_has_seen"),
    Mutation("one_more_than_the_slots", "worker/fetcher.py", "limit",
             "max(free, 0) +", "max(free, 0) + 1 +",
             f"{PREFETCH}::test_a_worker_claims_no_more_long_jobs_than_it_can_run"),
    Mutation("unstarted_are_kept", "worker/prefetch.py", "take_overdue",
             "overdue = self.lane.take_back()", "overdue: list[Context] = []",
             f"{PREFETCH}::test_what_was_claimed_ahead_of_long_jobs_goes_back"),
    Mutation("prefetch_unbounded", "worker/fetcher.py", "limit",
             "free + options.prefetch", "wanted",
             f"{PREFETCH}::test_prefetch_bounds_what_is_held_beyond_the_slots"),
    Mutation("same_pause_each_time", "worker/prefetch.py", "note_released",
             "longer if again else FIRST_PAUSE_S", "FIRST_PAUSE_S",
             f"{PREFETCH}::test_a_worker_alone_does_not_give_back_the_same_messages_in_circles"),
    Mutation("slots_of_others_hoard", "worker/fetcher.py", "free",
             "lanes = self.crowded or self.lanes", "lanes = self.lanes",
             f"{PREFETCH}::test_a_worker_that_comes_late_runs_what_the_first_could_not_begin"),
    Mutation("one_turn_for_all_consumers", "broker/consume.py", "_next_turn",
             "self.turns[queue_ids] = (self.turns.get(queue_ids, 0) + 1) % len(queue_ids)",
             "self.turns[()] = (self.turns.get((), 0) + 1) % len(queue_ids)",
             f"{PREFETCH}::test_queues_of_one_lane_take_turns_though_others_are_asked_as_well"),
)  # fmt: skip
