"""Groups failed messages by the fingerprint of their error."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from penstock.model.message import Moment
from penstock.rules.filter_completion import quote as quote_value
from penstock.rules.fingerprints import make_fingerprint, make_template
from penstock.rules.masking import MASKED

TREND_BUCKETS = 24
# A value is named if at least this share of the group has it, this many times that of the others.
MIN_SHARE = 0.6
MIN_LIFT = 1.5
MAX_TRAITS = 3
MAX_GROUPS = 100
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NO_ERROR = "no error was recorded"
# The errors that a caller may not see are one group.
MASKED_FINGERPRINT = "masked"


class FailedMessage(Struct, frozen=True):
    """A dead or failed message. `traits` are the attributes that groups are compared by.

    `error` is None if the caller may not see it.
    """

    id: int
    queue: str
    error: str | None
    at: Moment
    traits: Mapping[str, str]

    @property
    def fingerprint(self) -> str:
        return fingerprint_error(self.error)


class Trait(Struct, frozen=True):
    """A value that is over-represented: `share` of the group has it, and `others` of the rest."""

    name: str
    value: str
    share: float
    others: float


class FailureGroup(Struct, frozen=True):
    """`filter` selects the messages of the group."""

    fingerprint: str
    template: str
    sample: str
    sample_id: int
    count: int
    queues: list[str]
    first_at: Moment
    last_at: Moment
    trend: list[int]
    traits: list[Trait]
    filter: str


class FailureSpan(Struct, frozen=True):
    """The failures that were read: a time, and one queue or all of them.

    `hidden` names the queues whose errors the caller may not see.
    """

    since: Moment
    until: Moment
    queue: str | None = None
    hidden: Sequence[str] = ()


def fingerprint_error(error: str | None) -> str:
    return MASKED_FINGERPRINT if error is None else make_fingerprint(error)


def group_failures(failures: Sequence[FailedMessage], span: FailureSpan) -> list[FailureGroup]:
    """Returns the largest groups first, with a trend over the time of the span."""
    members: dict[str, list[FailedMessage]] = {}
    for failure in failures:
        members.setdefault(failure.fingerprint, []).append(failure)
    all_traits = count_traits(failures)
    groups = [
        make_group(fingerprint, group, all_traits, len(failures), span)
        for fingerprint, group in members.items()
    ]
    return sorted(groups, key=lambda group: (-group.count, group.fingerprint))[:MAX_GROUPS]


def make_group(
    fingerprint: str,
    group: Sequence[FailedMessage],
    all_traits: Counter[tuple[str, str]],
    total: int,
    span: FailureSpan,
) -> FailureGroup:
    newest = max(group, key=lambda failure: failure.at)
    error = MASKED if newest.error is None else newest.error
    queues = sorted({failure.queue for failure in group})
    return FailureGroup(
        fingerprint=fingerprint,
        template=make_template(error) or NO_ERROR,
        sample=error,
        sample_id=newest.id,
        count=len(group),
        queues=queues,
        first_at=min(failure.at for failure in group),
        last_at=newest.at,
        trend=make_trend([failure.at for failure in group], span.since, span.until),
        traits=find_traits(group, all_traits, total),
        filter=make_group_filter(fingerprint, queues, span),
    )


def make_trend(moments: Iterable[Moment], since: Moment, until: Moment) -> list[int]:
    width = max(1, (until - since) // TREND_BUCKETS + 1)
    counts = Counter((moment - since) // width for moment in moments)
    return [counts[bucket] for bucket in range(TREND_BUCKETS)]


def count_traits(failures: Iterable[FailedMessage]) -> Counter[tuple[str, str]]:
    return Counter(trait for failure in failures for trait in failure.traits.items())


def find_traits(
    group: Sequence[FailedMessage], all_traits: Counter[tuple[str, str]], total: int
) -> list[Trait]:
    others = total - len(group)
    if not others:
        return []
    found = []
    for (name, value), count in count_traits(group).items():
        share = count / len(group)
        rest = (all_traits[name, value] - count) / others
        if share >= MIN_SHARE and share >= MIN_LIFT * rest:
            found.append(Trait(name, value, share, rest))
    return sorted(found, key=lambda trait: (trait.others - trait.share, trait.name))[:MAX_TRAITS]


def make_group_filter(fingerprint: str, queues: Sequence[str], span: FailureSpan) -> str:
    """Returns a filter that matches the messages of the group, and those that join it later."""
    terms = ["state:dead,failed", f"failed>={format_moment(span.since)}"]
    if fingerprint != MASKED_FINGERPRINT:
        terms.append(f"fingerprint:{fingerprint}")
    if span.queue is not None:
        queues = [span.queue]
    elif not span.hidden:
        return " ".join(terms)
    # A filter may not test an error in a queue that masks it.
    return " ".join([*terms, f"queue:{','.join(map(quote_value, queues))}"])


def format_moment(moment: Moment) -> str:
    return (EPOCH + timedelta(microseconds=moment)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
