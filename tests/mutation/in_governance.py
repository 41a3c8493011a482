"""Mutations of schemas, scopes and topologies."""

from tests.mutation.in_rules import rule

SCHEMAS = "tests/unit/test_schemas.py"

GOVERNANCE = (
    rule("newer_policy_is_used", "broker/policy.py refuse_newer", "if format > FORMAT:",
         "if format > FORMAT + 1:", "governance"),
    rule("binding_of_every_type", "broker/policy.py find_schemas",
         "if match_glob(each.type, type)", "if each.type", "governance"),
    rule("edited_body_is_not_checked", "broker/messages.py redrive",
         "self.directory.check_schemas(draft, queue)", "pass", "governance"),
    rule("followers_of_breaking_versions", "broker/schemas/registry.py _move_followers",
         "if binding.schema == added.name and binding.follow", "if binding.schema == added.name",
         "governance"),
    rule("value_in_a_mismatch", "rules/schemas.py compile_schema", "mask=MASK,", "mask=None,",
         SCHEMAS),
    rule("schemas_are_fetched", "rules/schemas.py compile_schema", "offline=True,",
         "offline=False,", SCHEMAS),
    rule("patterns_without_limit", "rules/schemas.py refuse_costly", "if patterns > MAX_PATTERNS:",
         "if False:", SCHEMAS),
    rule("exponential_schemas_are_accepted", "rules/schemas.py parse_schema",
         "refuse_exponential(schema)", "pass", SCHEMAS),
    rule("countless_errors_are_listed", "rules/schemas.py find_mismatches", "if countless:",
         "if False:", SCHEMAS),
    rule("rules_of_a_file_ignore_each_other", "broker/routing/admin.py save_all",
         "DeclaredTopology({}, rules=rules)", "NOTHING_ELSE", "tests/cli/test_rules.py"),
    rule("new_field_breaks_producers", "rules/schema_compat.py compare_objects",
         'writer.get("additionalProperties", False)', 'writer.get("additionalProperties", True)',
         SCHEMAS),
    rule("archived_scope_accepts", "rules/drafts.py explain_refusal", "if queue.scope.archived:",
         "if False:", "scopes"),
    rule("old_directory_is_overwritten", "stores/sql/topology.py apply",
         "!= change.directory_version + 1", "< change.directory_version", "topology"),
    rule("full_queue_is_pruned", "broker/topology/apply.py is_in_use",
         "return busy or (item.scope, item.key) in kept", "return False", "topology"),
    rule("foreign_objects_are_taken", "broker/topology/plan.py refuse_foreign",
         "if adopt or not foreign:", "if True:", "topology"),
    rule("operators_switch_is_reset", "broker/topology/apply.py _keep_operated",
         "if field in before.fields and field not in item.fields", "if False", "topology"),
)  # fmt: skip
