"""Mutations of the rules, the broker's groups and the agents."""

from tests.mutation.mutation import Mutation, conformance


def rule(name: str, where: str, old: str, new: str, hint: str) -> Mutation:
    """`where` is the file and the function in it; a hint with a slash is a test's own path."""
    file, _, place = where.partition(" ")
    return Mutation(name, file, place, old, new, hint if "/" in hint else conformance(hint))


VISIBILITY = "tests/agents/test_visibility.py"
SCHEDULER = "tests/agents/test_scheduler.py"
CRON = "tests/agents/test_cron.py"
GROUPS = "tests/unit/test_group_commit.py"

RANKS = (
    rule("fifo_by_priority", "lifecycle.py rank_of", 'return 0, "zero"',
         'return -draft.priority, "zero"', "orderings"),
    rule("lowest_priority_first", "lifecycle.py rank_of", 'return -priority, "zero"',
         'return priority, "zero"', "orderings"),
    rule("no_deadline_first", "lifecycle.py rank_of", "NEVER if draft.deadline is None",
         "0 if draft.deadline is None", "orderings"),
    rule("ready_time_by_publish", "lifecycle.py rank_of", 'return 0, "due"', 'return 0, "created"',
         "orderings"),
    rule("levels_without_time", "lifecycle.py rank_of", '* 1000), "created"', '* 1000), "zero"',
         "orderings"),
    rule("clamp_to_the_least", "lifecycle.py clamp",
         "return max(settings.priority_min, min(settings.priority_max, priority))",
         "return settings.priority_min", "orderings"),
)  # fmt: skip

RETRIES = (
    rule("nack_counts_no_attempt", "lifecycle.py nack",
         "return again(lease, settlement, settings, lease.attempts + 1,",
         "return again(lease, settlement, settings, lease.attempts,", "retry"),
    rule("one_attempt_more", "lifecycle.py why_dead", "used >= max_attempts", "used > max_attempts",
         "retry"),
    rule("one_delivery_more", "lifecycle.py why_dead", "lease.deliveries >= max_deliveries",
         "lease.deliveries > max_deliveries", "retry"),
    rule("no_limit_in_time", "lifecycle.py why_dead", "if max_total is not None:", "if False:",
         "retry"),
    rule("own_limits_ignored", "lifecycle.py limits", "own = own or meta.max_attempts",
         "own = None", "retry"),
    rule("own_deliveries_ignored", "lifecycle.py limits", "if meta.max_deliveries:", "if False:",
         "retry"),
    rule("delay_asked_for_ignored", "lifecycle.py nack", "delay = settlement.delay", "delay = None",
         "settle"),
    rule("retry_without_backoff", "lifecycle.py nack",
         "delay = delay_before(used, settings.backoff, draw)", "delay = 0.0", "retry"),
    rule("reclaim_always_counts", "lifecycle.py reclaim", 'settings.retry.on_expiry != "keep"',
         "True", "reclaim"),
    rule("reclaim_without_backoff", "lifecycle.py reclaim", 'settings.retry.on_expiry == "backoff"',
         "False", "reclaim"),
    rule("reclaim_blames_the_unbegun", "lifecycle.py reclaim", "if lease.flags & Flag.UNBEGUN:",
         "if False:", "suspects"),
    rule("reclaim_at_any_time", "lifecycle.py expired_by",
         "lease.now if isinstance(settlement, Reclaim) else None", "None", "reclaim"),
    rule("delivery_not_given_back", "lifecycle.py hand_back", "given_back=1", "given_back=0",
         "settle"),
    rule("park_always_as_long", "lifecycle.py hand_back", "2 ** min(lease.parked, 5)", "1",
         "settle"),
    rule("fail_is_dead", "lifecycle.py settle", "State.FAILED", "State.DEAD", "settle"),
    rule("letter_loses_its_reason", "lifecycle.py by_flags", "lease.dead_reason", '"rejected"',
         "dead_letters"),
    rule("letter_is_retried", "lifecycle.py by_flags", "if lease.flags & Flag.FROM_DEAD and",
         "if False and", "dead_letters"),
    rule("cancel_request_ignored", "lifecycle.py by_flags",
         "if lease.flags & Flag.CANCEL_REQUESTED and", "if False and", "cancel"),
    rule("cancel_request_beats_a_failure", "lifecycle.py by_flags",
         "not isinstance(settlement, Reject | Fail)", "True", "cancel"),
    rule("retry_keeps_its_place", "lifecycle.py again",
         'settings.ordering == "ready_time" and', "False and", "orderings"),
)  # fmt: skip

ADMISSION = (
    rule("publish_to_the_system", "admission.py refusal", "if queue.system:", "if False:",
         "switches"),
    rule("publish_while_draining", "admission.py refusal",
         "if queue.state is QueueState.DRAINING:", "if False:", "switches"),
    rule("publish_to_a_closed_pause", "admission.py refusal", "if queue.settings.pause_accepts:",
         "if True:", "switches"),
    rule("publish_to_a_paused_scope", "admission.py refusal", "if queue.scope.paused:", "if False:",
         "switches"),
    rule("a_body_of_any_size", "admission.py is_common",
         "len(draft.body) <= settings.max_body", "True", "input"),
    rule("deadline_does_not_expire", "admission.py entry",
         "earliest(draft.expires_at, draft.deadline)", "draft.expires_at", "expiry"),
    rule("windows_and_unique_meet", "admission.py dedupe",
         '"unique" if dedup.window is None else "window"', '"unique"', "dedup"),
    rule("unique_unmarked", "admission.py flags_of", "Flag.UNIQUE * unique", "0", "dedup"),
    rule("keyed_unmarked", "admission.py flags_of",
         "Flag.KEYED * (draft.ordering_key is not None)", "0", "keys"),
    rule("paused_queue_serves", "queue.py serves", "(QueueState.ACTIVE, QueueState.DRAINING)",
         "(QueueState.ACTIVE, QueueState.DRAINING, QueueState.PAUSED)", "switches"),
    rule("draining_queue_does_not_serve", "queue.py serves",
         "(QueueState.ACTIVE, QueueState.DRAINING)", "(QueueState.ACTIVE,)", "switches"),
    rule("paused_scope_serves", "queue.py serves", "serving and not self.scope.paused", "serving",
         "switches"),
    rule("messages_of_another_tenant", "admin.py _own", "if queue.scope.tenant == self.tenant:",
         "if True:", "directory"),
    rule("letters_of_another_scope", "consumer.py _claim_dead",
         "queue.scope.id == scope.id and", "",
         "dead_letters"),
    rule("changed_is_not_decided_again", "consumer.py _settle_changed", "if changed:", "if False:",
         "cancel"),
)  # fmt: skip

AGENTS = (
    rule("guard_ignored", "agents/visibility.py may_reclaim",
         "return watch.last_at - watch.since >= lease / 3 * SECOND", "return True", VISIBILITY),
    rule("gap_not_seen", "agents/visibility.py watched",
         "or not 0 <= now - watch.last_at <= longest_gap", "", VISIBILITY),
    rule("guard_of_the_queues_lease", "agents/visibility.py _decide",
         "may_reclaim(lease.length, watch)", "may_reclaim(settings.lease, watch)", VISIBILITY),
    rule("spared_hide_the_others", "agents/visibility.py _look", "limit = BATCH + self.spared",
         "limit = BATCH", VISIBILITY),
    rule("sweep_of_an_old_look", "agents/visibility.py tick",
         "moves, more = await self._look()", "more = False", VISIBILITY),
    rule("a_dead_sweeper_keeps_its_tick", "agents/visibility.py tick", "self.every / 2, self.by",
         "self.every, self.by", VISIBILITY),
    rule("idle_sweep_takes_the_tick", "agents/visibility.py tick", "if not moves or not await",
         "if not await", "tests/agents/test_idle.py"),
    rule("sweep_without_the_tick", "agents/visibility.py tick",
         "if not moves or not await self.store.claim_tick(self.name, self.every / 2, self.by):",
         "if not moves:", VISIBILITY),
    rule("closing_queue_takes_ticks", "agents/scheduler.py takes_ticks",
         "return queue.state in (QueueState.ACTIVE, QueueState.PAUSED)", "return True", SCHEDULER),
    rule("paused_queue_takes_no_ticks", "agents/scheduler.py takes_ticks",
         "(QueueState.ACTIVE, QueueState.PAUSED)", "(QueueState.ACTIVE,)", SCHEDULER),
    rule("tick_without_its_key", "agents/scheduler.py tick_entry",
         'dedup=key, overflow="dead"', 'overflow="dead"', CRON),
    rule("tick_into_a_full_queue_is_lost", "agents/scheduler.py tick_entry",
         ', overflow="dead"', "", SCHEDULER),
    rule("scheduler_oversleeps", "agents/scheduler.py wait_until",
         "min(max(left, SHORTEST_WAIT), longest)", "longest", SCHEDULER),
    rule("scheduler_spins", "agents/scheduler.py wait_until", "max(left, SHORTEST_WAIT)", "0.0",
         SCHEDULER),
    rule("one_look_fires_no_more", "agents/scheduler.py _fire",
         "[each.next_at for each in due[FIRE_BATCH:]]", "[]", SCHEDULER),
    rule("unreadable_stops_the_others", "agents/scheduler.py _firing",
         "except (InvalidInput, NotFound) as error:", "except NotFound as error:", SCHEDULER),
)  # fmt: skip

GROUPING = (
    rule("one_bad_item_fails_all", "stores/group_commit.py run_apart", "if len(groups) == 1 or",
         "if True or", GROUPS),
    rule("sick_store_is_asked_again", "stores/group_commit.py run_apart",
         "isinstance(error, StoreError | asyncio.CancelledError)", "False", GROUPS),
    rule("groups_get_the_first_answers", "stores/group_commit.py run", "start = end", "pass",
         GROUPS),
    rule("group_without_limit", "stores/group_commit.py take", "if end and count > self.most:",
         "if False:", GROUPS),
    rule("group_split", "stores/group_commit.py take", "if end and count", "if count", GROUPS),
    rule("whoever_left_is_sent", "stores/group_commit.py take", " if not group.future.done()", "",
         GROUPS),
    rule("two_calls_in_flight", "stores/group_commit.py add", "self.busy = True", "pass", GROUPS),
    rule("atomic_in_a_lane", "stores/group_commit.py enqueue", "if atomic:", "if False:",
         "tests/unit/test_group_commit_store.py"),
)  # fmt: skip

RULES = (*RANKS, *RETRIES, *ADMISSION, *AGENTS, *GROUPING)
