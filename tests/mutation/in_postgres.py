"""Mutations of PostgreSQL's SQL: fences, locks that are not waited for, orders, limits, guards."""

from tests.mutation.mutation import Mutation, conformance

LOCKS = "tests/postgres/test_locks.py"
FEED = "tests/postgres/test_feed.py"
PICKS = "tests/postgres/test_picks.py"
FENCED = "tests/postgres/test_fences.py"
NOT_WAITED = "FOR UPDATE SKIP LOCKED"


def sql(name: str, place: str, old: str, new: str, hint: str) -> Mutation:
    """`hint`: a topic of the suite, or a file of the engine's own tests."""
    where = hint if "/" in hint else conformance(hint)
    return Mutation(f"pg_{name}", "stores/postgres/statements.sql", place, old, new, where)


KEYED = "tests/conformance/test_keyed_batches.py"
KEYED_LOCKS = "tests/postgres/test_keyed_batches.py"

KEYS = (
    Mutation("pg_notices_after_close", "stores/notifier.py", "",
             "if self.closed:", "if False:", "tests/postgres/test_wakes.py"),
    Mutation("pg_idle_writers_are_not_named", "stores/postgres/health.py", "",
             "backend_xid IS NOT NULL OR ", "", FEED),
    sql("keyed_publish_ignores_heads", "publish_keyed", "AND h.key = asked.key) IS NULL",
        "AND h.key = asked.key || '.') IS NULL", KEYED),
    sql("keyed_publish_takes_no_head", "publish_keyed",
        "WHERE first AND NOT delayed AND key IS NOT NULL", "WHERE false", KEYED),
    sql("keyed_publish_counts_the_delayed", "publish_keyed",
        "PARTITION BY queue_id, key, due > penstock.moment()", "PARTITION BY queue_id, key", KEYED),
    sql("keyed_publish_now_ignores_heads", "publish_keyed_now", "AND h.key = given.key) IS NULL",
        "AND h.key = given.key || '.') IS NULL", KEYED),
    sql("keyed_publish_now_takes_no_head", "publish_keyed_now",
        "WHERE leads AND key IS NOT NULL", "WHERE false", KEYED),
    Mutation("pg_keyed_publish_now_knows_no_batch", "stores/postgres/publish.py", "find_firsts",
             "first[line] == place", "True", KEYED),
    sql("keyed_complete_overtakes", "complete_keyed",
        "OR next IN (SELECT id FROM called)", "OR true", KEYED_LOCKS),
    sql("keyed_complete_keeps_the_head", "complete_keyed", "WHERE next IS NULL)", "WHERE false)",
        KEYED),
    sql("keyed_complete_passes_no_head", "complete_keyed", "AND ended.next IS NOT NULL",
        "AND false", KEYED),
    sql("keyed_complete_last_in_line", "complete_keyed", "ORDER BY s.position",
        "ORDER BY s.position DESC", KEYED),
    sql("keyed_complete_keeps_unique", "complete_keyed", "WHERE flags & {UNIQUE} <> 0", "WHERE false",
        KEYED),
)  # fmt: skip

FENCES = (
    sql("complete_any_fence", "complete", " AND l.fence = asked.fence", "", "fencing"),
    sql("complete_with_results_any_fence", "complete_with_results",
        " AND l.fence = asked.fence", "", "fencing"),
    sql("complete_frees_no_key", "complete", " AND l.flags & {ENDING} = 0", "", "keys"),
    sql("extend_any_fence", "extend_many", " AND l.fence = asked.fence", "", "fencing"),
    sql("begin_any_fence", "begin", " AND fence = :fence", "", "fencing"),
    sql("progress_any_fence", "progress", " AND fence = :fence", "", "fencing"),
    sql("settle_any_fence", "settle_many", " AND fence = asked.fence", "", "fencing"),
    sql("settle_any_flags", "settle_many", " AND flags = asked.flags", "", "cancel"),
    sql("settle_before_the_lease_is_over", "settle_many",
        "AND lease_until < asked.expired_by", "", "reclaim"),
    sql("settle_one_any_fence", "settle", " AND fence = :fence", "", FENCED),
    sql("take_lease_any_fence", "take_lease", " AND fence = :fence", "", "fencing"),
    sql("one_fence_for_ever", "claim", "nextval('penstock.fence')", "1", "claim"),
)  # fmt: skip

NO_WAITING = (
    sql("claim_waits", "pick_one", NOT_WAITED, "FOR UPDATE", LOCKS),
    sql("settle_waits", "settle_many", NOT_WAITED, "FOR UPDATE", LOCKS),
    sql("progress_waits", "progress", NOT_WAITED, "FOR UPDATE", LOCKS),
    sql("promote_waits", "promote_many", NOT_WAITED, "FOR UPDATE", LOCKS),
    sql("free_leases_wait", "free_leases", "FOR UPDATE OF l SKIP LOCKED", "FOR UPDATE OF l", LOCKS),
    sql("keys_are_waited_for", "try_lock", "pg_try_advisory_xact_lock", "pg_advisory_xact_lock",
        LOCKS),
    sql("claim_locks_nothing", "pick_one", NOT_WAITED, "", LOCKS),
    sql("complete_tells_nobody", "complete", "l.flags & {ENDING}", "l.flags & 3", "callbacks"),
    sql("results_tell_nobody", "complete_with_results", "l.flags & {ENDING}", "l.flags & 3",
        "callbacks"),
    sql("a_retry_forgets_the_callback", "settle_many", "l.flags & {LASTING}", "l.flags & 35",
        "callbacks"),
    sql("busy_is_never_told", "lease_fence", "free.id IS NULL", "false", LOCKS),
)  # fmt: skip

CLAIMS = (
    sql("claim_by_id", "pick_one", "ORDER BY rank, id", "ORDER BY id", "orderings"),
    sql("claim_by_rank_descending", "pick_one", "ORDER BY rank, id", "ORDER BY rank DESC, id",
        "orderings"),
    sql("claim_newest_first", "pick_one", "ORDER BY rank, id", "ORDER BY rank, id DESC",
        "orderings"),
    sql("claim_without_limit", "pick_one", "LIMIT :limit", "LIMIT 1000 + :limit", "claim"),
    sql("claim_hands_out_the_expired", "pick_one", " AND expires_at > penstock.moment()", "",
        "expiry"),
    sql("claim_at_the_expiry", "pick_one", "expires_at > penstock", "expires_at >= penstock",
        "moments"),
    sql("line_by_id", "pick_line", "ORDER BY first.rank, first.id", "ORDER BY first.id", PICKS),
    sql("types_by_id", "pick_types", "ORDER BY first.rank, first.id", "ORDER BY first.id", PICKS),
    sql("any_type", "pick_types", "r.type = wanted.type", "true", "claim"),
    sql("claim_counts_no_delivery", "claim", "deliveries + 1", "deliveries", "claim"),
    sql("claim_believes_every_consumer", "claim", ":begins::bool AND ",
        "(:begins::bool OR true) AND ", "suspects"),
    sql("claim_suspects_the_first_delivery", "claim", "deliveries > 0", "deliveries >= 0",
        "suspects"),
    sql("own_lease_ignored", "claim", "WHEN flags & {OWN_LEASE} = 0", "WHEN true", "claim"),
    sql("claimed_out_of_order", "claim", "ORDER BY rank, id", "ORDER BY rank, id DESC", "claim"),
    sql("expired_in_line_are_not_told", "claim", "AND expires_at < 9007199254740991)",
        "AND expires_at < 0)", "expiry"),
    sql("dead_by_id", "claim_dead", "ORDER BY d.dead_at, d.id", "ORDER BY d.id", "dead_letters"),
    sql("dead_of_any_type", "claim_dead", "d.type = ANY (:types::text[])", "true",
        "dead_letters"),
    sql("claim_dead_unmarked", "claim_dead", "flags | {FROM_DEAD}", "flags", "dead_letters"),
)  # fmt: skip

SETTLEMENTS = (
    sql("complete_counts_no_attempt", "complete", "attempts + 1", "attempts", "settle"),
    sql("complete_is_not_final", "complete", "penstock.moment(), true", "penstock.moment(), false",
        "settle"),
    sql("extend_shortens", "extend_many", "greatest(l.lease_until,", "greatest(0,", "leases"),
    sql("begun_again_and_again", "begin", "coalesce(begun_at, :now)", ":now", "suspects"),
    sql("begin_changes_nothing", "begin", "flags & ~{UNBEGUN}", "flags", "suspects"),
    sql("progress_forgets_the_note", "progress", "coalesce(:note, note)", ":note", "leases"),
    sql("lease_over_at_its_last_moment", "leases_expired", "lease_until < penstock",
        "lease_until <= penstock", "moments"),
    sql("retry_keeps_its_rank", "settle_many", "WHEN asked.ranked THEN",
        "WHEN asked.ranked AND false THEN", "orderings"),
    sql("dead_forgets_its_error", "settle_many", "coalesce(error, dead_error)", "error",
        "dead_letters"),
    sql("dead_forgets_when", "settle_many", "coalesce(dead_at, penstock.moment())",
        "penstock.moment()", "dead_letters"),
    sql("cancelled_is_not_final", "settle_many", "'expired', 'cancelled')", "'expired')",
        "cancel"),
    sql("released_by_nobody_else", "story_of_fence", "NOT final AND fence = :fence", "NOT final",
        "fencing"),
)  # fmt: skip

UPKEEP = (
    Mutation("new_schema_waits_for_others", "stores/postgres/schema.py", "apply",
             "migration.online and not fresh", "migration.online",
             "tests/postgres/test_migrations.py::test_a_new_schema_waits_for_no_older_transaction"),
    sql("promote_early", "promote_many", "due_at <= penstock.moment() AND ", "", "schedule"),
    sql("promote_before_its_turn", "promote_many", "flags & {KEYED} = 0", "true", "keys"),
    sql("expire_early", "expire_ready", "expires_at <= penstock.moment() AND ", "", "expiry"),
    sql("expire_keeps_the_key", "expire_ready", "AND flags & {ENDING} = 0 AND", "AND", "keys"),
    sql("line_of_keys_by_id", "first_in_line", "ORDER BY position", "ORDER BY id", "keys"),
    sql("expiry_tells_nobody", "expire_ready", "flags & {ENDING}", "flags & 3", "callbacks"),
    sql("expiry_of_the_scheduled_tells_nobody", "expire_scheduled", "flags & {ENDING}", "flags & 3",
        "callbacks"),
    sql("unique_is_never_free", "unique_free", "WHERE id = :id AND", "WHERE id = :id AND false AND",
        "dedup"),
    sql("age_counts_from_the_first_wait", "ready_since", "ORDER BY position DESC",
        "ORDER BY position", "resumed_age"),
    sql("age_ignores_the_end_of_others", "ready_since", "AND e.state IS NOT NULL)",
        "AND e.state IS NULL)", "resumed_age"),
    sql("tick_taken_by_anybody", "claim_tick", "OR agent.at <= :before", "OR :before::bigint > 0",
        "upkeep"),
    sql("tick_of_the_future_is_kept", "claim_tick", " OR agent.at > :after", "", "clock"),
    sql("scheduled_at_once", "publish_mixed", "FROM known WHERE due > penstock.moment()),",
        "FROM known WHERE due > penstock.moment() AND false),", "schedule"),
    sql("fires_a_paused_schedule", "schedules_move", " AND NOT s.paused", "", "cron"),
    sql("fires_twice", "schedules_move", " AND s.next_at = asked.seen_at", "", "cron"),
    sql("forgets_a_tick", "dedups_seen", " AND expires_at > :now", " AND expires_at < :now",
        "cron"),
    sql("waits_for_a_schedule", "schedules_move", "FOR UPDATE OF s SKIP LOCKED", "FOR UPDATE OF s",
        "tests/postgres/test_firing.py"),
    sql("columns_without_the_last_position", "message_columns", "tx <= :last", "tx < :last", FEED),
    sql("bodies_of_any_size", "message_columns", "bytes FROM total) <= :most",
        "bytes FROM total) <> :most", FEED),
    sql("feed_ahead_of_the_horizon", "horizon", "txid_snapshot_xmin", "txid_snapshot_xmax", FEED),
    sql("feed_of_unsummarized_pages", "summarize",
        "brin_summarize_new_values('penstock.message_tx')", "0", FEED),
    sql("rank_is_short", "publish_one", ":rank::bigint", ":rank", PICKS),
)  # fmt: skip

POSTGRES = (*KEYS, *FENCES, *NO_WAITING, *CLAIMS, *SETTLEMENTS, *UPKEEP)
