"""Mutations of MariaDB's SQL: fences, locks that are not waited for, orders, limits, guards."""

from tests.mutation.mutation import Mutation, conformance

OUTAGES = "tests/mariadb/test_outages.py"
FEED = "tests/mariadb/test_feed.py"
PLANS = "tests/mariadb/test_plans.py"
WAKES = "tests/mariadb/test_wakes.py"
NOT_WAITED = "FOR UPDATE SKIP LOCKED"


def sql(name: str, place: str, old: str, new: str, hint: str) -> Mutation:
    """`hint`: a topic of the suite, or a file of the engine's own tests."""
    where = hint if "/" in hint else conformance(hint)
    return Mutation(f"maria_{name}", "stores/mariadb/statements.sql", place, old, new, where)


def code(name: str, file: str, place: str, old: str, new: str, hint: str) -> Mutation:
    where = hint if "/" in hint else conformance(hint)
    return Mutation(f"maria_{name}", f"stores/mariadb/{file}", place, old, new, where)


KEYED = "tests/conformance/test_keyed_batches.py"

KEYS = (
    code("keyed_publish_ignores_heads", "publish.py", "publish_keyed",
         "taken = await heads_of(tx, entries)", "taken: set[tuple[int, str]] = set()", KEYED),
    code("keyed_publish_takes_no_head", "publish.py", "place_keyed",
         'await tx.run("take_head", queue_id=entry.queue_id, key=key, id=ticket.id)', "pass",
         KEYED),
    code("keyed_complete_keeps_the_head", "publish.py", "pass_on",
         'await tx.run("free_head", id=id)', "pass", KEYED),
    code("keyed_complete_keeps_unique", "publish.py", "end_keyed", "if held.flags & Flag.UNIQUE:",
         "if False:", KEYED),
    sql("keyed_complete_last_in_line", "lines_of_heads", "ORDER BY s.position",
        "ORDER BY s.position DESC", KEYED),
    code("plain_part_in_one_packet", "transaction.py", "publish_plain",
         "publish.split_into_packets(entries)", "(entries,)", "tests/mariadb/test_keyed_batches.py"),
    code("wake_with_its_password", "redis_notifier.py", "make_client", "redact_url(url)", "url",
         f"{WAKES}::test_a_wake_that_cannot_be_read_is_named_without_its_password"),
)  # fmt: skip

FENCES = (
    code("any_fence", "statement.py", "locks_of", "fence = {fence} AND ", "", "fencing"),
    sql("begin_any_fence", "begin", " AND fence = :fence", "", "fencing"),
    sql("progress_any_fence", "progress", " AND fence = :fence", "", "fencing"),
    sql("settle_one_any_fence", "settle", " AND fence = :fence", "", "fencing"),
    sql("take_lease_any_fence", "take_lease", " AND fence = :fence", "", "fencing"),
    sql("one_fence_for_ever", "number_claim", "nextval(penstock_fence)", "1", "claim"),
    sql("complete_frees_no_key", "complete", " AND flags & {ENDING} = 0", "", "keys"),
    code("settle_any_flags", "dialect.py", "is_unchanged", "row is None or row[7] != move.seen_flags",
         "row is None", "cancel"),
    code("settle_before_the_lease_is_over", "dialect.py", "is_unchanged", "row[13] < move.expired_by",
         "True", "reclaim"),
)  # fmt: skip

NO_WAITING = (
    sql("claim_waits", "pick", NOT_WAITED, "FOR UPDATE", OUTAGES),
    sql("settle_waits", "settle_look", NOT_WAITED, "FOR UPDATE", OUTAGES),
    sql("extend_waits", "hold_leases", "FOR UPDATE NOWAIT", "FOR UPDATE", OUTAGES),
    sql("free_leases_wait", "free_leases", NOT_WAITED, "FOR UPDATE", OUTAGES),
    sql("keys_are_waited_for", "try_lock", NOT_WAITED, "FOR UPDATE", OUTAGES),
    sql("complete_tells_nobody", "complete_leave", "flags & {ENDING}", "flags & 3", "callbacks"),
    sql("busy_is_never_told", "lease_fence", "free.id IS NULL", "0", OUTAGES),
)  # fmt: skip

CLAIMS = (
    sql("claim_by_id", "pick", "ORDER BY rank, id", "ORDER BY id", "orderings"),
    sql("claim_by_rank_descending", "pick", "ORDER BY rank, id", "ORDER BY rank DESC, id",
        "orderings"),
    sql("claim_newest_first", "pick", "ORDER BY rank, id", "ORDER BY rank, id DESC", "orderings"),
    sql("claim_hands_out_the_expired", "pick", " AND expires_at > @now", "", "expiry"),
    sql("claim_at_the_expiry", "pick", "expires_at > @now", "expires_at >= @now", "moments"),
    sql("any_type", "pick_type", "type = :type", "1", "claim"),
    sql("claim_counts_no_delivery", "claim", "deliveries + 1", "deliveries", "claim"),
    sql("claim_believes_every_consumer", "claim", ":begins AND ", "(:begins OR 1) AND ",
        "suspects"),
    sql("claim_suspects_the_first_delivery", "claim", "deliveries > 0", "deliveries >= 0",
        "suspects"),
    sql("claim_leaves_nothing", "claim_leave_ready", "l.fence = @fence", "l.fence = -@fence",
        "balance"),
    sql("claim_tells_of_others", "claimed", " AND l.fence = @fence", "", "claim"),
    sql("own_lease_ignored", "own_lengths", "l.flags & {OWN_LEASE}", "0", "claim"),
    code("own_lease_untold", "claim.py", "make_leased", "until - length + message_lease_micros(meta)", "until",
         "claim"),
    code("claimed_out_of_order", "claim.py", "make_leased", "key=itemgetter(order)",
         "key=itemgetter(order), reverse=True", "claim"),
    sql("expired_in_line_are_not_told", "expired_waits", "expires_at <= @now", "expires_at < 0",
        "expiry"),
    sql("dead_by_id", "pick_dead", "ORDER BY dead_at, id", "ORDER BY id", "dead_letters"),
    sql("claim_dead_unmarked", "claim_dead", "flags | {FROM_DEAD}", "flags", "dead_letters"),
)  # fmt: skip

SETTLEMENTS = (
    sql("complete_counts_no_attempt", "complete", "attempts + 1", "attempts", "settle"),
    sql("complete_is_not_final", "complete", "@now, 1", "@now, NULL", "settle"),
    sql("complete_keeps_the_lease", "complete_leave", "(:locks)", "(:locks) AND 0", "settle"),
    sql("extend_shortens", "extend_many", "greatest(lease_until,", "greatest(0,", "leases"),
    sql("begun_again_and_again", "begin", "coalesce(begun_at, :now)", ":now", "suspects"),
    sql("progress_forgets_the_note", "progress", "coalesce(:note, note)", ":note", "leases"),
    sql("lease_over_at_its_last_moment", "leases_expired", "lease_until < @now",
        "lease_until <= @now", "moments"),
    sql("released_by_nobody_else", "story_of_fence", " AND fence = :fence", "", "fencing"),
)  # fmt: skip

UPKEEP = (
    sql("promote_early", "promote_many", "due_at <= @now AND ", "", "schedule"),
    sql("promote_before_its_turn", "promote_many", "flags & {KEYED} = 0", "1", "keys"),
    sql("promote_keeps_the_scheduled", "leave_scheduled", "s.id = gone.id", "s.id = -gone.id",
        "schedule"),
    sql("expire_early", "expire_ready", "expires_at <= @now AND ", "", "expiry"),
    sql("expire_keeps_the_key", "expire_ready", " AND flags & {ENDING} = 0", "", "keys"),
    sql("line_of_keys_by_id", "first_in_line", "ORDER BY position", "ORDER BY id", "keys"),
    sql("dedup_for_ever", "dedup_seen", " AND expires_at > :now", "", "dedup"),
    sql("expiry_tells_nobody", "expire_scheduled", "flags & {ENDING}", "flags & 3", "callbacks"),
    sql("unique_is_never_free", "unique_free", "WHERE id = :id", "WHERE id = -:id", "dedup"),
    sql("tick_taken_by_anybody", "claim_tick", "OR at <= :before", "OR :before > 0", "upkeep"),
    sql("tick_of_the_future_is_kept", "claim_tick", " OR at > :after", "", "clock"),
    sql("fires_a_paused_schedule", "schedules_lock", " AND NOT paused", "", "cron"),
    code("fires_twice", "transaction.py", "move_schedules",
         " if (id, seen_at) in due", "", "cron"),
    sql("waits_for_a_locked_schedule", "schedules_lock", " SKIP LOCKED", "",
        "tests/mariadb/test_firing.py"),
    sql("nobody_is_waited_for_by_the_feed", "enter", " LOCK IN SHARE MODE", "", FEED),
    sql("small_tables_are_read_whole", "leave_ready", "FORCE INDEX (PRIMARY)",
        "IGNORE INDEX (PRIMARY)", PLANS),
    sql("news_are_overlooked", "look", "newest > :seen", "newest < :seen", WAKES),
    sql("nobody_is_rung_for", "ring", "KILL QUERY listener", "SET listener = NULL", WAKES),
    sql("a_refused_ring_ends_a_publish", "ring", "CONTINUE HANDLER FOR SQLEXCEPTION",
        "CONTINUE HANDLER FOR NOT FOUND", WAKES),
)  # fmt: skip

MARIADB = (*KEYS, *FENCES, *NO_WAITING, *CLAIMS, *SETTLEMENTS, *UPKEEP)
