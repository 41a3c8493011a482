"""Mutations of what operators use: copies, the command line, its counts."""

from tests.mutation.mutation import Mutation, conformance

COPY = conformance("copy")

COPYING = (
    Mutation("copied_twice", "stores/sql/copying.py", "restore",
             "if life.message.id not in stored", "", COPY),
    Mutation("copied_without_its_rank", "stores/sql/copying.py", "read_tickets",
             "if not unfinished <= tickets.keys():", "if False:", COPY),
    Mutation("copied_fences_begin_anew", "stores/sqlite/dialect.py", "raise_counters",
             "message=counters.message", "message=0", COPY),
    Mutation("a_copy_serves_before_it_is_whole", "broker/copy_store.py", "create_queues",
             "await target.pause_scope(scope.id, True)", "pass", COPY),
    Mutation("claimed_messages_are_copied_unasked", "broker/copy_store.py", "copy_store",
             "if plan.claimed and not release_claimed:", "if False:", COPY),
    Mutation("copied_over_another_store", "broker/copy_store.py", "refuse_used",
             "if messages or", "if", COPY),
    Mutation("redis_copies_twice", "stores/redis/lua/restore.lua", "",
             "if call('HEXISTS', message, life.id) == 0 then", "if true then", COPY),
)  # fmt: skip

OPERATIONS = (*COPYING,)
