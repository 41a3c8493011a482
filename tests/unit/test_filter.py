"""The filter grammar: what it means, what it refuses, and that it stays quick."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import FilterTooLarge, InvalidInput
from penstock.model.filter import Candidate
from penstock.model.message import FINAL, State
from penstock.rules.filter_match import evaluate, find_bounds, match_term, matches, may_match
from penstock.rules.filter_parser import parse_filter
from penstock.rules.fingerprints import make_fingerprint
from penstock.rules.globs import match_glob, match_parts

# 2026-11-17T12:00:00Z
NOW = 1_794_916_800_000_000
SECOND = 1_000_000
HOUR = 3_600 * SECOND
DAY = 24 * HOUR

MAIL = Candidate(
    state=State.DEAD,
    queue="mail-eu",
    scope="default",
    type="mail.send",
    id=2**60 + 1,
    name="welcome",
    key="customer-7",
    correlation="order-1",
    consumer="host:1",
    reason="retries_exhausted",
    error="TimeoutError: no answer from SMTP\n  second line: x",
    priority=5,
    attempts=3,
    deliveries=4,
    created=NOW - 2 * HOUR,
    failed=NOW - HOUR,
    wait=90.0,
    rules=("premium@3",),
    labels={"tier": "gold", "a.b": "c"},
    headers={"tenant": "acme"},
    body=json.dumps(
        {"country": "BR", "amount": 100.5, "vip": True, "tags": ["new", "eu"], "note": None,
         "items": [{"sku": "a"}, {"sku": "b"}], "big": 2**60, "a.b": {"c": 1}}
    ).encode(),
    size=120,
)  # fmt: skip


def fits(text: str, candidate: Candidate = MAIL) -> bool:
    return matches(parse_filter(text, NOW), candidate)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "state:dead queue:mail* -type:heartbeat error:timeout age>10m body.country:BR",
        "label.tier:gold,silver",
        "label.a.b:c",
        "rule:premium",
        "created<2999-01-01",
        "rule:premium@3",
        "-rule:premium@2",
        'header."tenant":acme',
        "state:unfinished",
        "state:ready,dead",
        "queue:*eu",
        "queue:m*l-*u",
        "type:mail.send,other",
        f"id:{2**60 + 1}",
        "name:welcome key:customer-* correlation:order-1",
        "worker:host:1 consumer:host*",
        "reason:retries_exhausted error.kind:TimeoutError",
        f"fingerprint:{make_fingerprint(MAIL.error or '')} failed>-2h failed<=-1h",
        'error:"NO ANSWER"',
        "error:time*smtp",
        "priority>4 priority>=5 priority<6 priority<=5 priority:5",
        "attempts:3 deliveries>3 size<1000",
        "created<-1h created>-3h created:today created>=2026-11-17 created<2026-11-18",
        "created>2026-11-16",
        "created<=2026-11-17",
        "created>2026-11-17T09:00Z created<2026-11-17T12:00+01:00",
        "age>1h age<3h",
        "wait>1m wait<2m",
        "body.amount>100 body.amount<=100.5 body.amount:100.5",
        "body.vip:true body.note:null body.tags:eu",
        "body.items.sku:b body.items.0.sku:a body.items:*",
        f"body.big:{2**60}",
        'body."a.b".c:1',
        "(queue:other OR state:dead)",
        "-(queue:other OR state:ready)",
        "-queue:other --state:dead",
        "(state:ready OR (state:dead -priority:0))",
        "-label.missing:x -body.missing:*",
    ],
)
def test_a_message_that_fits_is_matched(text: str) -> None:
    assert fits(text)


@pytest.mark.parametrize(
    "text",
    [
        "state:ready",
        "state:ended",
        "queue:mail",
        "queue:MAIL*",
        'queue:"mail*"',
        f"id:{2**60}",
        "type:heartbeat",
        "fingerprint:0000000000000000",
        "failed<-1h",
        "-state:dead",
        "label.tier:silver",
        "label.missing:*",
        "body.country:br",
        "body.amount>100.5",
        "body.vip>0",
        "body.country>5",
        "body.items.7.sku:a",
        "created>2026-11-17",
        "created:yesterday",
        "created>2999-01-01",
        "created:2999-01-01",
        "ended<now",
        "age<1h",
        "error:refused",
        "error.kind:Timeout",
        "(queue:other OR state:ready)",
        "state:dead queue:other",
    ],
)
def test_a_message_that_does_not_fit_is_not_matched(text: str) -> None:
    assert not fits(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("quue:mail", "unknown field 'quue' at 1; did you mean 'queue'?"),
        ("state:dead  quue:mail", "unknown field 'quue' at 13; did you mean 'queue'?"),
        ("state:deda", "'deda' is not a state at 7; did you mean 'dead'?"),
        ("queue>a", "queue is compared with ':', not '>' at 7"),
        ("priority:high", "priority is a number, not 'high' at 10"),
        ("priority:nan", "priority is a number, not 'nan' at 10"),
        ("age:10m", "age is compared with > or < at 5; write age>10m"),
        ("age>soon", "duration 'soon' is invalid at 5; write it like"),
        ("created>soon", "'soon' is not a time at 9; write 2026-11-16"),
        ("created>2026-02-30", "'2026-02-30' is not a time: day is out of range"),
        ("label:gold", "'label' needs a key at 1; write label.NAME:VALUE"),
        ("mail", "unknown field 'mail' at 1"),
        ("queue", "expected FIELD:VALUE, not 'queue' at 1"),
        ("queue:", "expected a value at 7"),
        ("queue:a,", "expected a value at 9"),
        ('queue:"a', "expected a value at 7"),
        ("(state:dead", "'(' is never closed at 1"),
        ("state:dead)", "unmatched ')' at 11"),
        ("()", "expected a term such as state:dead at 2"),
        ("a OR b", "unknown field 'a' at 1"),
        ("state:dead OR state:ready", "OR needs parentheses: (a OR b) at 12"),
        ("priority>1,2", "> takes one value, not a list at 10"),
    ],
)
def test_a_mistake_is_named_with_its_position(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match="filter: ") as raised:
        parse_filter(text, NOW)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    "text",
    [
        "queue:" + "a" * 2_000,
        " ".join(["id:1"] * 51),
        "(" * 9 + "id:1" + ")" * 9,
        "id:" + ",".join("1" * 101),
        "queue:" + "*a" * 9,
    ],
)
def test_a_filter_beyond_its_limits_is_refused(text: str) -> None:
    with pytest.raises(FilterTooLarge):
        parse_filter(text, NOW)


def test_many_dashes_do_not_exhaust_the_stack() -> None:
    assert fits("-" * 1_000 + "state:dead")


@pytest.mark.parametrize("body", [b"", b"\xff\x00", b"[" * 100_000, b"5", b'"text"'])
def test_a_body_that_is_not_an_object_has_no_fields(body: bytes) -> None:
    assert not fits("body.country:*", Candidate(body=body))


def test_a_pattern_with_many_stars_is_quick_on_a_long_text() -> None:
    assert not fits("type:*a*a*a*a*a*a*ab", Candidate(type="a" * 200_000))
    assert not match_glob("*a" * 60 + "b", "a" * 2_000)


STARS = st.text("ab*?", max_size=8)


@given(STARS, st.text("ab", max_size=12))
def test_a_glob_means_what_it_means_everywhere(pattern: str, text: str) -> None:
    assert match_glob(pattern, text) is match_naively(pattern, text)
    if "?" not in pattern:
        assert match_parts(pattern.split("*"), text) is match_naively(pattern, text)


def test_parts_of_a_pattern_do_not_overlap() -> None:
    assert not match_parts(("", "ab", "ba", ""), "aba")


def match_naively(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(match_naively(pattern[1:], text[n:]) for n in range(len(text) + 1))
    return bool(text) and pattern[0] in ("?", text[0]) and match_naively(pattern[1:], text[1:])


TERMS = st.sampled_from(
    ["state:dead", "state:ended", "queue:a*", "queue:b", "type:x", "priority>0", "label.k:v",
     "created<-1h", "created:today", "age<30m", "id:1,2", "correlation:c"]
)  # fmt: skip


def group(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda a, b: f"({a} OR {b})", inner, inner) | st.builds(
        lambda a, b, sign: f"{sign}({a} {b})", inner, inner, st.sampled_from(["", "-"])
    )


FILTERS = st.recursive(TERMS | TERMS.map(lambda term: f"-{term}"), group, max_leaves=6)
CANDIDATES = st.builds(
    Candidate,
    state=st.sampled_from(State),
    queue=st.sampled_from(["a", "ab", "b"]),
    type=st.sampled_from(["x", "y"]),
    id=st.integers(1, 3),
    priority=st.integers(-1, 1),
    created=st.sampled_from([NOW, NOW - HOUR // 2, NOW - 2 * HOUR, NOW - DAY]),
    correlation=st.sampled_from([None, "c", "d"]),
    labels=st.sampled_from([None, {"k": "v"}, {"k": "w"}]),
)


@given(FILTERS, CANDIDATES, st.sets(st.sampled_from(["state", "queue", "type", "id"])))
def test_what_may_match_never_leaves_out_a_match(
    text: str, candidate: Candidate, known: set[str]
) -> None:
    node = parse_filter(text, NOW)
    if matches(node, candidate):
        assert may_match(node, candidate, known)


@given(FILTERS, CANDIDATES)
def test_bounds_never_leave_out_a_match(text: str, candidate: Candidate) -> None:
    node = parse_filter(text, NOW)
    bounds = find_bounds(node)
    if matches(node, candidate):
        assert candidate.created is not None
        assert bounds.created_since <= candidate.created < bounds.created_until
        assert bounds.ids is None or candidate.id in bounds.ids
        assert bounds.correlation in (None, candidate.correlation)


@given(FILTERS, CANDIDATES)
def test_a_filter_and_its_negation_exclude_each_other(text: str, candidate: Candidate) -> None:
    assert fits(text, candidate) is not fits(f"-({text})", candidate)


def test_bounds_are_found_in_terms_that_are_joined_by_and() -> None:
    bounds = find_bounds(parse_filter("id:1,2,3 id:3,2 correlation:c created:today", NOW))
    day = NOW // DAY * DAY
    assert bounds.ids == (2, 3)
    assert bounds.correlation == "c"
    assert (bounds.created_since, bounds.created_until) == (day, day + DAY)


def test_unfinished_and_ended_are_complements() -> None:
    unfinished = {state for state in State if fits("state:unfinished", Candidate(state=state))}
    assert unfinished == set(State) - FINAL


def test_an_unknown_term_leaves_an_open_verdict() -> None:
    def decide(term: Any) -> bool | None:
        return match_term(term, MAIL) if term.field == "state" else None

    assert evaluate(parse_filter("state:dead queue:x", NOW), decide) is None
    assert evaluate(parse_filter("state:ready queue:x", NOW), decide) is False
    assert evaluate(parse_filter("(state:dead OR queue:x)", NOW), decide) is True
