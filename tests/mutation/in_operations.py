"""Mutations of what operators use: copies, the command line, its counts."""

from tests.mutation.mutation import Mutation, conformance

COPY = conformance("copy")

COPYING = (
    Mutation("copied_twice", "stores/sql/copying.py", "restore",
             "if life.message.id not in stored", "", COPY),
    Mutation("copied_without_its_rank", "stores/sql/copying.py", "read_tickets",
             "if not unfinished <= tickets.keys():", "if False:", COPY),
    Mutation("copied_fences_begin_anew", "stores/sqlite/dialect.py", "raise_counters",
             "fence=counters.fence", "fence=0", COPY),
    Mutation("a_copy_serves_before_it_is_whole", "broker/copy_store.py", "create_queues",
             "await target.pause_scope(scope.id, True)", "pass", COPY),
    Mutation("claimed_messages_are_copied_unasked", "broker/copy_store.py", "copy_store",
             "if plan.claimed and not release_claimed:", "if False:", COPY),
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
    Mutation("a_search_forgets_the_dead", "broker/search.py", "list_sources",
             "if state in states]", "if state in states][:1]", SEARCH),
    Mutation("a_search_of_ready_ones_repeats", "stores/sqlite/statements.sql", "search_ready",
             "r.id > :id", "r.id >= :id", SEARCH),
    Mutation("redis_misses_the_dead_of_a_moment", "stores/redis/lua/scan.lua", "",
             "'(' .. bound,", "'(' .. prefix .. key,", SEARCH),
)  # fmt: skip

OPERATIONS = (*COPYING, *LOOKING, *SEARCHING)
