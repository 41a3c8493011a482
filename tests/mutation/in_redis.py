"""Mutations of Redis's scripts: fences, orders, limits, what is remembered and forgotten."""

from tests.mutation.mutation import Mutation, conformance

OUTAGES = "tests/redis/test_outages.py"
CENSUS = "tests/redis/test_census.py"


def lua(name: str, file: str, place: str, old: str, new: str, hint: str) -> Mutation:
    """`hint`: a topic of the suite, or a file of the engine's own tests."""
    where = hint if "/" in hint else conformance(hint)
    return Mutation(f"redis_{name}", f"stores/redis/lua/{file}.lua", place, old, new, where)


FENCES = (
    lua("complete_any_fence", "complete", "", "sub(text, 1, start) == fences[place] .. ' '",
        "true", "fencing"),
    lua("held_by_any_fence", "lib/lease", "held", "t.fence == fence and t or nil", "t", "fencing"),
    lua("one_fence_for_ever", "claim", "begin", "call('HINCRBY', fact, 'fence', 1)", "1", "claim"),
    lua("settle_any_flags", "settle", "", " and t.flags == tonumber(seen)", "", "cancel"),
    lua("settle_before_the_lease_is_over", "settle", "", "t and not runs and", "t and", "reclaim"),
    lua("explain_forgets_the_fence", "lib/lease", "explain", "if by == fence then",
        "if false then", "fencing"),
    lua("complete_twice_in_a_batch", "complete", "", " and not done[id]", "", "batches"),
)  # fmt: skip

CLAIMS = (
    lua("claim_without_limit", "lib/ticket", "of_queue", "'LIMIT', 0, limit)", "'LIMIT', 0, -1)",
        "claim"),
    lua("claim_hands_out_the_expired", "claim", "", "tonumber(t.expires) <= now", "false",
        "expiry"),
    lua("claim_at_the_expiry", "claim", "", "tonumber(t.expires) <= now",
        "tonumber(t.expires) < now", "moments"),
    lua("claim_counts_no_delivery", "claim", "hold_remembered", "t.deliveries + 1",
        "t.deliveries", "retry"),
    lua("any_type", "claim", "scan", "wanted[sub(member, 37)] and ", "", "claim"),
    lua("line_by_nothing", "claim", "picked", "sub(a, 9, 36) < sub(b, 9, 36)",
        "sub(a, 9, 36) > sub(b, 9, 36)", "claim"),
    lua("own_lease_ignored", "claim", "hold_remembered", "tonumber(t.own) or length", "length",
        "leases"),
    lua("suspects_are_begun", "claim", "hold_remembered", "t.deliveries > 1 then",
        "t.deliveries > 99 then", "suspects"),
    lua("torn_claims_are_handed_out", "claim", "", "if leased[place] then", "if false then",
        OUTAGES),
    lua("dead_by_id", "claim_dead", "", "sub(a, 9, 36) < sub(b, 9, 36)",
        "sub(a, 23, 36) < sub(b, 23, 36)", "dead_letters"),
)  # fmt: skip

KEYS = (
    lua("every_key_is_free", "lib/keys", "advance", "while not call('HGET', head, key) do",
        "while true do", "keys"),
    lua("keys_stay_taken", "lib/ending", "free_keys", "advance(t.key)", "", "keys"),
    lua("others_free_the_key", "lib/ending", "free_keys", " and is_head(t)", "", "keys"),
    lua("unique_for_ever", "lib/ending", "free_keys", "if has(t.flags, UNIQUE) then",
        "if false then", "dedup"),
    lua("redriven_to_the_front", "lib/dead", "put_back",
        "hex(call('HINCRBY', fact, 'message', 1))", "hex(0)", "keys"),
    lua("dedup_outlives_its_window", "lib/publishing", "seen_before",
        "if tonumber(expires) <= now then", "if false then", "dedup"),
    lua("other_bodies_are_duplicates", "lib/publishing", "seen_before",
        "digest == group.digest and", "digest and", "dedup"),
    lua("names_are_not_taken", "lib/publishing", "remember", "call('HSET', name, group.name, id)",
        "", "names"),
    lua("atomic_is_not", "publish", "", "ARGV[2] == 'atomic' and", "false and", "batches"),
    lua("never_full", "lib/publishing", "is_full", ">= group.max_depth", "> 1e9", "depth"),
)  # fmt: skip

MOVES = (
    lua("expires_at_publish_only", "lib/publishing", "dated", "now + tonumber(group.ttl)",
        "tonumber(NEVER)", "expiry"),
    lua("due_at_once", "lib/publishing", "dated", "due_at > now", "false", "schedule"),
    lua("promote_early", "promote", "", "'-inf', now_text", "'-inf', '+inf'", "schedule"),
    lua("promote_past_the_line", "promote", "", " and not is_head(t)", " and false", "keys"),
    lua("extend_shortens", "extend", "",
        "math.max(tonumber(call('ZSCORE', lease_until, id)), now + length)", "now + length",
        "leases"),
    lua("begun_again_and_again", "mark", "keep_mark", "begun_at or now_text", "now_text",
        "suspects"),
    lua("settle_forgets_the_error", "settle", "apply", "error = move.error, ", "", "retry"),
    lua("dead_are_forgotten", "settle", "apply", "place_dead(t, move, dead_ticket)", "", "retry"),
    lua("rank_stays", "settle", "moved", "if move.ranked == '1' then", "if false then",
        "orderings"),
    lua("redrive_keeps_counters", "lib/dead", "put_back", "t.deliveries, t.expires = 0, 0,",
        "t.deliveries, t.expires = t.attempts, 0,", "redrive"),
    lua("cancel_forgets_the_line", "cancel", "cancel_one", "leave_line(t)", "",
        "tests/redis/test_keys.py"),
    lua("purge_is_not_told", "purge", "", "finish(t, 'cancel', 'cancelled', 'purged')",
        "over(t, 'cancelled')",
        "switches"),
    lua("fires_twice", "fire", "", " and next_at == seen_at", "", "cron"),
    lua("everybody_gets_the_tick", "claim_tick", "", "then return 0 end", "then end", "upkeep"),
    lua("tick_of_the_future_is_kept", "claim_tick", "", " and age >= -tonumber(ARGV[3])", "",
        "clock"),
    lua("age_the_resumed", "find_aging", "", "ready_since(id) <= before",
        "tonumber(match(call('HGET', message, id), '^%d+')) <= before", "resumed_age"),
    lua("age_of_64_levels", "find_aging", "", "local reply = {above}", "local reply = {''}",
        "orderings"),
    lua("results_for_ever", "result", "", " or tonumber(expires) <= now", "", "settle"),
    lua("pruned_history_stays", "prune", "", "call('XDEL', history, position .. '-0')", "",
        "upkeep"),
    lua("nobody_is_woken", "lib/ticket", "put_ready", "woken[t.queue] = true", "", "wakes"),
    lua("numbers_are_used_again", "meet", "", "call('HINCRBY', fact, number, 1048576)", "",
        OUTAGES),
    lua("full_is_full", "complete", "", "call('HDEL', fact, '')", "", OUTAGES),
)  # fmt: skip

CALLBACKS = (
    lua("nobody_is_told", "lib/ending", "over", "if has(t.flags, CALLBACK) then", "if false then",
        "callbacks"),
    lua("told_without_a_reason", "lib/ending", "call_back", "local why = reason and",
        "local why = false and", "callbacks"),
    lua("told_of_in_another_story", "lib/ending", "call_back", "redis.sha1hex(named) .. id",
        "redis.sha1hex(of) .. id", "callbacks"),
    lua("told_of_again", "settle", "apply", "if dead_ticket and move.state == 'dead' then",
        "if false then", "callbacks"),
    lua("a_retry_forgets_the_callback", "settle", "", "bit.band(t.flags, LASTING)",
        "bit.band(t.flags, LASTING - CALLBACK)", "callbacks"),
)  # fmt: skip

COUNTS = (
    lua("census_without_leases", "census", "look", "if leased then", "if false then", "export"),
    lua("census_of_any_ready", "census", "count_ready",
        "if call('ZSCORE', ready, ready_member(t)) then", "if true then", CENSUS),
    lua("census_of_the_newest", "census", "", "math.min(last_id, tonumber(ARGV[4]))",
        "last_id + 0", CENSUS),
    lua("census_of_the_newest_rows", "census", "", "last_row .. '-0', 'COUNT'", "'+', 'COUNT'",
        CENSUS),
    lua("census_past_large_bodies", "census", "look_from", "return numbers[place] end",
        "return numbers[#numbers] end", CENSUS),
    lua("census_of_one_page_of_rows", "census", "", "#rows == limit and", "false and", CENSUS),
)  # fmt: skip

REDIS = (*FENCES, *CLAIMS, *KEYS, *MOVES, *CALLBACKS, *COUNTS)
