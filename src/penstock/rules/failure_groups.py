"""Groups failed messages by the fingerprint of their error."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from penstock.model.message import Moment
from penstock.rules.fingerprints import make_fingerprint, make_template

TREND_BUCKETS = 24
# A value is named if at least this share of the group has it, this many times that of the others.
MIN_SHARE = 0.6
MIN_LIFT = 1.5
MAX_TRAITS = 3
MAX_GROUPS = 100
NO_ERROR = "no error was recorded"
PLACEHOLDER = re.compile("<(?:id|address|url|text|path|hex|n)>|…")
MIN_FRAGMENT_LENGTH = 4


class FailedMessage(Struct, frozen=True):
    """A dead or failed message. `traits` are the attributes that groups are compared by."""

    id: int
    queue: str
    error: str
    at: Moment
    traits: Mapping[str, str]


class Trait(Struct, frozen=True):
    """A value that is over-represented: `share` of the group has it, and `others` of the rest."""

    name: str
    value: str
    share: float
    others: float


class FailureGroup(Struct, frozen=True):
    """`filter` selects the dead letters of the group."""

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


def group_failures(
    failures: Sequence[FailedMessage], since: Moment, until: Moment
) -> list[FailureGroup]:
    """Returns the largest groups first, with a trend over the time from `since` to `until`."""
    members: dict[str, list[FailedMessage]] = {}
    for failure in failures:
        members.setdefault(make_fingerprint(failure.error), []).append(failure)
    all_traits = count_traits(failures)
    groups = [
        make_group(fingerprint, group, all_traits, len(failures), (since, until))
        for fingerprint, group in members.items()
    ]
    return sorted(groups, key=lambda group: (-group.count, group.fingerprint))[:MAX_GROUPS]


def make_group(
    fingerprint: str,
    group: Sequence[FailedMessage],
    all_traits: Counter[tuple[str, str]],
    total: int,
    span: tuple[Moment, Moment],
) -> FailureGroup:
    newest = max(group, key=lambda failure: failure.at)
    template = make_template(newest.error)
    queues = sorted({failure.queue for failure in group})
    return FailureGroup(
        fingerprint=fingerprint,
        template=template or NO_ERROR,
        sample=newest.error,
        sample_id=newest.id,
        count=len(group),
        queues=queues,
        first_at=min(failure.at for failure in group),
        last_at=newest.at,
        trend=make_trend([failure.at for failure in group], *span),
        traits=find_traits(group, all_traits, total),
        filter=make_group_filter(newest.error, template, queues),
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


def make_group_filter(error: str, template: str, queues: Sequence[str]) -> str:
    """Returns the closest filter: the longest fixed part of the error, in these queues."""
    terms = ["state:dead", f"queue:{','.join(queues[:20])}"]
    fragment = find_longest_fragment(template)
    # A placeholder of blanks may join two parts that were apart.
    if fragment is not None and fragment in error:
        terms.append(f"error:{quote_term(fragment)}")
    return " ".join(terms)


def quote_term(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def find_longest_fragment(template: str) -> str | None:
    """Returns the longest fixed part of a template, which a filter can search for."""
    longest = max((piece.strip() for piece in PLACEHOLDER.split(template)), key=len)
    return longest if len(longest) >= MIN_FRAGMENT_LENGTH else None
