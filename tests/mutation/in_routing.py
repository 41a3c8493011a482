"""Mutations of routing rules, units and broadcasts."""

from tests.mutation.mutation import Mutation, conformance

UNIT = "tests/unit/test_routing.py"

ROUTING = (
    Mutation("units_forget_their_copies", "stores/sql/publish.py", "publish_checked",
             "if entry.unit is not None and entry.unit.copies:", "if False:", conformance("units")),
    Mutation("stale_units_are_written", "stores/sql/publish.py", "publish_checked",
             "not await still_stands(tx, entry.unit)", "False", conformance("units")),
    Mutation("rules_fire_again_and_again", "rules/routing.py", "apply",
             "if stops(draft.path, rule):", "if False:", UNIT),
    Mutation("rules_make_any_number", "rules/routing.py", "apply",
             "if len(hop.copies) + len(copies) > hop.room:", "if False:", UNIT),
    Mutation("copies_keep_their_name", "rules/rule_actions.py", "apply",
             "name=None, dedup=None, callback=None", "dedup=None, callback=None", UNIT),
    Mutation("broadcasts_expect_nothing", "broker/broadcast.py", "fan_out",
             "expects=((BROADCAST, make_set_name(queue), fanout.version),),", "expects=(),",
             conformance("broadcast")),
    Mutation("fanouts_ignore_their_guard", "stores/postgres/statements.sql", "publish_fanout",
             "WHERE version = coalesce((", "WHERE version >= coalesce((", conformance("units")),
    Mutation("copies_share_one_queue", "broker/broadcast.py", "make_children",
             "queue_id=queue.id", "queue_id=made[-1].queue_id", conformance("broadcast")),
    Mutation("catching_up_repeats", "agents/broadcast_follower.py", "_is_missing",
             "and fan < subscription.version", "", conformance("broadcast")),
    Mutation("recent_ends_are_not_beyond_the_feed", "stores/postgres/statements.sql", "recent",
             "AND tx > :passed", "AND position > :passed", conformance("export")),
    Mutation("quick_ends_move_no_version", "agents/rule_follower.py", "_look_quickly",
             "guards=(stored,)", "guards=()", conformance("rule_ends")),
    Mutation("sure_ends_keep_their_marks", "agents/rule_follower.py", "_look_surely",
             "passed = done & ", "passed = set() & ", conformance("rule_ends")),
    Mutation("rules_outlive_their_authors_rights", "broker/rule_policy.py", "check_rights",
             "self.monitor.suspend(stored, reason)", "pass", conformance("rule_rights")),
    Mutation("rights_are_not_checked_when_rules_are_loaded", "broker/rule_policy.py", "load",
             "await self.check_rights([each.stored for each in used.values()], queues)", "pass",
             conformance("rule_rights")),
    Mutation("steps_of_rules_are_not_held", "stores/sql/publish.py", "publish_copies",
             "if any(copy.after for copy in copies):", "if False:", conformance("rules")),
)  # fmt: skip
