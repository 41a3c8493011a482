"""Wire types of routing rules."""

from typing import Annotated

from msgspec import Meta, Struct

from penstock.model.routing import Rule, RuleCoverage, RuleFields, StoredRule
from penstock.wire.fields import Time, to_datetime, to_moment

Tried = Annotated[int, Meta(ge=1, le=10_000, description="Number of recent messages to try.")]
RULE_FIELDS = RuleFields.__struct_fields__


class NewRule(
    RuleFields, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A routing rule. `queue` and `type` are globs, `when` is a CEL expression, and each action of
    `do` has exactly one field."""


class RuleView(RuleFields, frozen=True, kw_only=True, omit_defaults=True):
    """A stored rule. `suspended` is the reason if the rule was suspended automatically."""

    name: str
    scope: str
    version: int
    saved_at: Time
    author: str = ""
    suspended: str = ""


class RuleList(Struct, frozen=True, omit_defaults=True):
    rules: list[RuleView]
    cursor: str | None = None


class RuleTrial(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule to try on the last messages of its queues."""

    rule: NewRule
    name: str = "test"
    last: Tried = 1_000


class RuleCoverages(Struct, frozen=True):
    rules: list[RuleCoverage]


def make_rule(name: str, scope: str, sent: RuleFields) -> Rule:
    return Rule(name=name, scope=scope, **{each: getattr(sent, each) for each in RULE_FIELDS})


def make_new_rule(rule: Rule) -> NewRule:
    return NewRule(**{each: getattr(rule, each) for each in RULE_FIELDS})


def make_rule_view(stored: StoredRule) -> RuleView:
    rule = stored.rule
    return RuleView(
        name=rule.name,
        scope=rule.scope,
        version=stored.version,
        saved_at=to_datetime(stored.saved_at),
        author=stored.author,
        suspended=stored.suspended,
        **{each: getattr(rule, each) for each in RULE_FIELDS},
    )


def make_stored_rule(view: RuleView) -> StoredRule:
    return StoredRule(
        rule=make_rule(view.name, view.scope, view),
        tenant="default",
        version=view.version,
        author=view.author,
        saved_at=to_moment(view.saved_at),
        suspended=view.suspended,
    )
