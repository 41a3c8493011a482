"""Mutations of what operators use: copies, the command line, its counts."""

from tests.mutation.mutation import Mutation, conformance

COPY = conformance("copy")
COPY_WAITS = conformance("copy_waits")

COPYING = (
    Mutation("copied_twice", "stores/sql/copying.py", "restore",
             "if life.message.id not in stored", "", COPY),
    Mutation("copied_without_its_rank", "stores/sql/copying.py", "read_tickets",
             "if not unfinished <= tickets.keys():", "if False:", COPY),
    Mutation("copied_fences_start_over", "stores/sqlite/dialect.py", "raise_counters",
             "fence=counters.fence", "fence=0", COPY),
    Mutation("a_copy_serves_before_it_is_whole", "broker/copy_store.py", "create_queues",
             "await target.pause_scope(scope.id, True)", "pass", COPY),
    Mutation("claimed_messages_are_copied_unasked", "broker/copy_store.py", "copy_store",
             "if plan.claimed and not release_claimed:", "if False:", COPY),
    Mutation("a_copied_rule_fires_again_on_old_ends", "broker/copy_store.py", "prepare_document",
             "since=now", "since=0", COPY),
    Mutation("waiting_messages_are_copied_without_their_holds", "stores/sql/copying.py",
             "make_rows", "if life.waits is not None:", "if False:", COPY_WAITS),
    Mutation("pages_are_copied_without_their_waits", "stores/sql/copying.py", "choose_span",
             "bool(waits)", "False", COPY_WAITS),
    Mutation("a_page_with_holds_alone_has_no_waits", "stores/sql/statements.sql",
             "copy_wait_sizes", "FROM penstock_hold\nWHERE", "FROM penstock_hold\nWHERE 0 AND",
             COPY_WAITS),
    Mutation("ends_before_a_copy_are_never_seen", "stores/sql/copying_waits.py", "add_waits",
             "if waits.holds:", "if False:", COPY_WAITS),
    Mutation("a_copied_held_message_is_in_the_line_of_its_key", "stores/sql/copying.py",
             "add_ticket", "None if ticket.flags & Flag.HELD else key", "key", COPY_WAITS),
    Mutation("results_of_removed_messages_are_not_copied", "stores/sql/copying.py", "restore",
             "if page.results:", "if False:", COPY_WAITS),
    Mutation("a_copied_broadcast_begins_with_version_1", "broker/copy_store.py", "copy_documents",
             "await copy_versions(source, target, BROADCAST)", "pass", COPY),
    Mutation("copied_over_another_store", "broker/copy_store.py", "refuse_used",
             "if messages or", "if", COPY),
    Mutation("redis_copies_twice", "stores/redis/lua/restore.lua", "",
             "if call('HEXISTS', message, life.id) == 0 then", "if true then", COPY),
)  # fmt: skip

OPERATORS = "tests/cli/test_operators.py"

LOOKING = (
    Mutation("a_missing_store_is_made", "cli/context.py", "main",
             "if not create and not await", "if create and not await",
             "tests/cli/test_stores.py::test_working_on_no_store_is_refused"),
    Mutation("options_before_the_command_are_lost", "cli/context.py", "call",
             'url or before.get("url")', "url", OPERATORS),
    Mutation("a_count_is_not_marked", "cli/commands/status.py", "make_cell",
             'return f"{row[name]}+" if truncated else row[name]', "return row[name]", OPERATORS),
    Mutation("finished_messages_are_imported", "http/handlers/bulk.py", "takes",
             "in self.states", "is not None",
             "tests/http/test_bulk.py::test_finished_messages_are_imported_only_on_request"),
    Mutation("a_burst_uses_up_the_reserve", "stores/sqlite/files.py", "check_room",
             "free - LOW_WATER - WRITE_AMPLIFICATION * wanted", "free - LOW_WATER",
             "tests/sqlite/test_disk_full.py::test_a_burst_does_not_outrun_the_reserve"),
    Mutation("the_scheduler_is_silent", "agents/scheduler.py", "_report",
             "if not any(self.counts.values()) or", "if True or",
             "tests/agents/test_scheduler.py::test_the_last_work_of_the_scheduler_is_known"),
    Mutation("nobody_blocks_a_key", "stores/sql/records.py", "make_scheduled_record",
             "blocked_by=blocked_by", "blocked_by=None",
             conformance("keys::test_a_waiting_message_names_the_one_that_holds_its_key")),
)  # fmt: skip

SEARCH = conformance("search")

SEARCHING = (
    Mutation("a_full_page_skips_the_rest_of_its_batch", "broker/search.py", "keep_matching",
             "return wanted[record.message.id]", "return batch[-1]", SEARCH),
    Mutation("a_search_trusts_the_index_about_states", "broker/search.py", "keep_matching",
             "verdicts[record.message.id] and state in (None, record.state)",
             "verdicts[record.message.id]", SEARCH),
    Mutation("a_search_forgets_the_dead", "broker/search.py", "list_sources",
             "if state in states))", "if state in states))[:1]", SEARCH),
    Mutation("a_search_forgets_the_cancelled", "stores/sqlite/statements.sql",
             "search_unsuccessful", "h.state <> 'completed'", "h.state = 'failed'", SEARCH),
    Mutation("redis_forgets_the_failed", "stores/redis/lua/lib/history.lua", "",
             "ZADD', unsuccessful", "ZREM', unsuccessful", SEARCH),
    Mutation("a_search_of_ready_ones_repeats", "stores/sqlite/statements.sql", "search_ready",
             "r.id > :id", "r.id >= :id", SEARCH),
    Mutation("redis_misses_the_dead_of_a_moment", "stores/redis/lua/scan.lua", "",
             "'(' .. bound,", "'(' .. prefix .. key,", SEARCH),
)  # fmt: skip

CHANGES, HISTORIAN = conformance("changes"), conformance("historian")

COUNTING = (
    Mutation("a_change_forgets_what_it_expects", "stores/sql/advance.py", "guards_hold",
             "(*guards, *change.expects)", "tuple(guards)", CHANGES),
    Mutation("a_refused_entry_saves_documents", "stores/sql/advance.py", "advance",
             "if any_refused(published):", "if False:", CHANGES),
    Mutation("redis_saves_over_another_version", "stores/redis/lua/advance.lua", "",
             "if version_of(ARGV[place]) ~= ARGV[place + 1] then", "if false then", CHANGES),
    Mutation("rows_of_another_process_are_counted_again", "agents/historian.py", "has_news",
             "if version != self.book.version or version == 0:", "if version == 0:", HISTORIAN),
    Mutation("every_process_reads_history", "agents/historian.py", "has_news",
             "if counted_elsewhere:", "if False:", HISTORIAN),
    Mutation("a_late_historian_takes_its_time", "agents/historian.py", "tick",
             "if self.lag < LATE_S else LATE_REST_FACTOR", "", HISTORIAN),
    Mutation("a_lost_race_is_accepted", "agents/historian.py", "advance",
             "await self.store.advance(self.book.make_change()) is None",
             "await self.store.advance(self.book.make_change()) == 0", HISTORIAN),
    Mutation("waits_of_minutes_are_not_kept", "broker/metrics/book.py", "add_waits",
             "self.put(WAIT_MINUTE, name, total)", "pass", conformance("metrics")),
    Mutation("an_hour_adds_up_one_queue", "broker/metrics/queries.py", "sum_hour",
             "latest[:MAX_SUMMED_QUEUES]", "latest[:1]", conformance("metrics")),
    Mutation("the_last_hour_has_foreign_queues", "http/handlers/dashboard.py", "get_overview_hour",
             "await own_queues(call)", "call.service.directory.by_id.values()",
             "tests/http/test_dashboard.py::"
             "test_the_last_hour_adds_up_the_queues_that_the_caller_may_read"),
    Mutation("top_starts_without_rates", "cli/top_screen.py", "follow",
             "await self.look_back(now)", "pass",
             "tests/cli/test_top.py::"
             "test_top_knows_the_rates_of_the_seconds_before_it_started"),
    Mutation("late_counts_make_a_spike", "http/dashboard/series.py", "count",
             "self.counted_at, at)", "at, at)",
             "tests/http/test_dashboard.py::"
             "test_messages_published_between_two_counts_are_spread_over_the_time"),
    Mutation("late_counts_leave_a_gap", "http/dashboard/series.py", "bridge",
             "self.samples[between] = sample", "pass",
             "tests/http/test_dashboard.py::test_counts_that_are_far_apart_leave_no_gap"),
    Mutation("messages_ignore_their_own_limit", "http/context.py", "view",
             "compute_limits(record.message.meta, queue.settings)",
             "(queue.settings.max_attempts, 0)",
             "tests/http/test_dashboard.py::test_a_message_says_how_many_attempts_it_may_have"),
    Mutation("a_queue_is_hidden_by_busier_ones", "http/dashboard/overview.py", "make_overview",
             "(queue.name != contains, -weigh(inputs, queue), queue.name)",
             "(-weigh(inputs, queue), queue.name)",
             "tests/http/test_dashboard.py::"
             "test_a_queue_is_found_by_its_name_among_busier_ones"),
    Mutation("an_overview_computes_every_queue", "http/dashboard/overview.py", "make_overview",
             "make_figures(inputs, queue) for queue in sorted(shown, key=lambda each: each.name)",
             "each for each in [make_figures(inputs, queue) for queue in inputs.queues]"
             " if each.queue in {queue.name for queue in shown}",
             "tests/http/test_dashboard.py::"
             "test_an_overview_computes_the_figures_that_it_shows"),
    Mutation("failures_like_a_message_are_all", "http/handlers/dashboard.py", "list_failures",
             "if make_fingerprint(failure.error) == wanted", "",
             "tests/http/test_dashboard.py::test_the_failures_like_a_message_are_one_group"),
    Mutation("a_key_makes_every_queue_keyed", "stores/sql/statements.sql", "queues_with_keys",
             "LIMIT 1) = q.id", "LIMIT 1) IS NULL", conformance("keys")),
    Mutation("types_have_no_limit", "broker/metrics/book.py", "use",
             "if used >= most:", "if False:", HISTORIAN),
    Mutation("an_agent_holds_retention_for_a_month", "stores/sql/statements.sql",
             "held_by_cursors", "THEN :agents_since", "THEN :since", conformance("heads")),
)  # fmt: skip

BULK = conformance("bulk")
REPLACE = conformance("replace")

BULK_ACTIONS = (
    Mutation("bulk_acts_on_later_messages", "rules/bulk.py", "belongs",
             "record.message.id <= action.as_of.message and ", "", BULK),
    Mutation("bulk_reaches_queues_of_others", "broker/bulk/reader.py", "find_scope",
             "and access.allows(Right.MANAGE, queue.scope.name, queue.name)", "", BULK),
    Mutation("bulk_trusts_a_revoked_key", "broker/bulk/reader.py", "find_access",
             'if state != "active":', "if False:", BULK),
    Mutation("bulk_is_taken_over_at_once", "agents/bulk_runner.py", "is_owned_by_another",
             "return action.owned_until > await self.store.now()", "return False", BULK),
    Mutation("bulk_reads_ahead_with_old_rights", "broker/bulk/reader.py", "fits",
             "starts_here and self.scope.is_same(scope)", "starts_here", BULK),
    Mutation("bulk_rate_leaves_out_the_work", "agents/bulk_runner.py", "compute_interval",
             "return done / action.request.rate", "return done / action.request.rate - 0.1",
             "tests/unit/test_bulk_batches.py"),
    Mutation("bulk_counts_a_pass_twice", "broker/bulk/steps.py", "apply",
             "pass_over=page.over,", "pass_over=False,", BULK),
    Mutation("bulk_never_shrinks_its_batches", "stores/sqlite/verbs.py", "advance_timed",
             "held=monotonic() - began", "held=0.0", "tests/unit/test_bulk_batches.py"),
    Mutation("bulk_batches_grow_without_bound", "rules/bulk.py", "fit_batch",
             "if count * fitting >= MAX_BATCH * held:", "if not held:",
             "tests/unit/test_bulk_batches.py"),
    Mutation("a_set_of_dead_messages_ignores_history", "stores/sql/messages.py", "lock_dead_set",
             "if found and as_of is not None:", "if False:", BULK),
    Mutation("a_dry_run_counts_messages_that_changed", "broker/bulk/reader.py", "make_search",
             "and action.state is BulkState.RUNNING", "", BULK),
    Mutation("a_digest_takes_a_retry_for_a_first_run", "stores/sqlite/statements.sql",
             "digest_history", "AND NOT EXISTS", "OR NOT EXISTS", conformance("heads")),
    Mutation("a_batch_leaves_others_no_turn", "broker/bulk/steps.py", "write",
             "self.rest = min(written, MAX_HELD_S) if changed.held else 0.0", "self.rest = 0.0",
             "tests/unit/test_bulk_batches.py"),
    Mutation("an_item_ignores_history", "stores/sql/items.py", "is_changed",
             "return (row[0] or 0) > item.as_of", "return False", REPLACE),
    Mutation("redis_items_ignore_history", "stores/redis/lua/lib/items.lua", "",
             "if is_changed(item) then return answer('changed', state) end", "", REPLACE),
    Mutation("an_edited_message_loses_its_turn", "stores/sql/items.py", "keep_turn",
             "turn = old.id if position is None else position", "turn = id", REPLACE),
    Mutation("a_replaced_message_calls_back", "stores/sql/items.py", "replace",
             "await keys.free(tx, item.id, old.flags)",
             "await keys.finalize(tx, item.id, old.flags, State.CANCELLED)", REPLACE),
)  # fmt: skip

OPERATIONS = (*BULK_ACTIONS, *COPYING, *LOOKING, *SEARCHING, *COUNTING)
