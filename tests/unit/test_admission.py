"""What may enter a queue, and what is refused by which name."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import BodyTooLarge, Forbidden, InvalidInput
from penstock.model.message import NEVER, Dedup, Draft, Meta
from penstock.model.queue import Queue, QueueState, Scope
from penstock.model.settings import PRESETS, SHELL_TYPE, QueueSettings, get_preset
from penstock.rules.drafts import check, compute_own_lease, explain_refusal, make_entry
from penstock.rules.validation import check_name, clip
from tests.unit.leases import NOW

SCOPE = Scope(1, "default", "default")
HUGE = 10**5000
NAN, INFINITE = float("nan"), float("inf")
LONE_SURROGATE = "a\ud800b"


def dedup(**fields: Any) -> Dedup:
    return Dedup(**fields)


TEXT = ("", "x" * 201, "a\x00b", LONE_SURROGATE, b"bytes", 5, True, ["a"])
LENGTH = (-1, NAN, INFINITE, HUGE, -HUGE, True, "5", [1])
WHOLE = (NAN, INFINITE, HUGE, True, 1.5, 1.0, "5", [1])
TEXTS = (
    {"k": "x" * 8193},
    {"k": "a\x00b"},
    {"k": 5},
    {"k": None},
    {5: "v"},
    {"x" * 201: "v"},
    {"": "v"},
)
BAD: dict[str, tuple[object, ...]] = {
    "body": ("text", None, 5, bytearray(b"x"), memoryview(b"x"), b"x" * 1_048_577),
    "type": (*TEXT, None),
    "priority": (*WHOLE, None, 1_000_001, -1_000_001),
    "delay": (*LENGTH, None),
    "run_at": (*WHOLE, -1, NEVER, 2**63),
    "ttl": LENGTH,
    "expires_at": (*WHOLE, -1, NEVER),
    "dedup": (
        "key",
        {"key": "k"},
        5,
        *(dedup(key=key) for key in (*TEXT, None)),
        *(dedup(key="k", window=window) for window in (*LENGTH, 0)),
    ),
    "name": TEXT,
    "headers": ("", "text", 5, [], [("k", "v")], *TEXTS),
    "labels": ("", "text", 5, [], [("k", "v")], *TEXTS),
    "content_type": (*TEXT, None),
    "deadline": (*WHOLE, -1, NEVER),
    "lease": (*LENGTH, 0, 0.09, 43_201),
    "timeout": (*LENGTH, 0),
    "max_attempts": (*WHOLE, 0, -1, 32_768),
    "max_deliveries": (*WHOLE, 0, -1, 32_768),
    "ordering_key": TEXT,
    "correlation_id": TEXT,
    "causation_id": TEXT,
    "parent_id": (*WHOLE, 0, -1, 2**63),
    "traceparent": TEXT,
    "hops": (*WHOLE, None, -1, 1_001),
    "publisher": TEXT,
    "callback": (*TEXT, "example.org", "ftp://example.org/", "http://a@b/", "http:///x"),
}


def draft_with(fields: dict[str, Any]) -> Draft:
    return Draft(**fields)


def test_every_field_of_a_draft_has_its_bad_inputs_here() -> None:
    # The queue's name is looked up before anything is checked, and rules write the others.
    assert set(BAD) | {"queue", "path", "fan"} == set(Draft.__struct_fields__)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(field, value, id=f"{field}-{number}")
        for field, values in BAD.items()
        for number, value in enumerate(values)
    ],
)
def test_a_bad_input_is_refused_by_the_name_of_its_field(field: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=field) as refused:
        check(draft_with({field: value}), QueueSettings())
    assert len(str(refused.value)) < 400


GOOD: dict[str, tuple[object, ...]] = {
    "body": (b"", b"x" * 1_048_576),
    "type": ("x" * 200, "ünïcødé", "😀"),
    "priority": (-1_000_000, 1_000_000),
    "delay": (0, 0.5, 10 * 366 * 86_400),
    "run_at": (0, NEVER - 1),
    "ttl": (0, 1.5),
    "dedup": (Dedup("k"), Dedup("k" * 200, None), Dedup("k", 0.001)),
    "headers": ({}, {"k" * 200: "v" * 8192}),
    "labels": ({}, {"urgent": ""}),
    "lease": (0.1, 43_200),
    "max_attempts": (1, 32_767),
    "parent_id": (1, 2**63 - 1),
    "hops": (0, 1_000),
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(field, value, id=f"{field}-{number}")
        for field, values in GOOD.items()
        for number, value in enumerate(values)
    ],
)
def test_the_edges_of_what_is_allowed_are_allowed(field: str, value: object) -> None:
    check(draft_with({field: value}), QueueSettings())


def test_a_body_over_the_limit_of_its_queue_has_its_own_code() -> None:
    with pytest.raises(BodyTooLarge, match=r"body has 11 bytes; queue 'default'.* most 10"):
        check(Draft(body=b"x" * 11), QueueSettings(max_body=10))


def test_a_delay_and_a_moment_are_one_too_many() -> None:
    with pytest.raises(InvalidInput, match="delay or run_at"):
        check(Draft(delay=1, run_at=NOW), QueueSettings())


@pytest.mark.parametrize(
    ("draft", "lease"),
    [
        (Draft(timeout=1_000), 1_060),
        (Draft(timeout=10), 300),
        (Draft(timeout=1_000, lease=20), 20),
        (Draft(), None),
        (Draft(timeout=1_000, type=SHELL_TYPE), None),
        (Draft(timeout=1_000, type=SHELL_TYPE, lease=20), 20),
    ],
)
def test_a_shell_queue_leases_for_a_whole_run_except_what_its_workers_extend(
    draft: Draft, lease: float | None
) -> None:
    assert compute_own_lease(draft, get_preset("queuectl")) == lease


def test_all_headers_and_labels_together_have_a_limit() -> None:
    crowded = Draft(headers={f"k{number}": "v" * 8_000 for number in range(9)})
    check(crowded, QueueSettings())
    with pytest.raises(InvalidInput, match="headers and labels"):
        make_entry(crowded, Queue(9, SCOPE, "jobs"))


@pytest.mark.parametrize("priority", [10, -1])
def test_a_priority_out_of_range_is_refused_or_in_a_clamping_queue_clamped(priority: int) -> None:
    with pytest.raises(InvalidInput, match="priority"):
        check(Draft(priority=priority), get_preset("relay"))
    check(Draft(priority=priority), get_preset("codeq"))
    assert make_entry(
        Draft(priority=priority), Queue(9, SCOPE, "jobs", settings=get_preset("codeq"))
    ).priority == max(0, min(9, priority))


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=9),
    st.binary(max_size=9),
    st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    st.builds(Dedup, st.text(max_size=9), st.none() | st.floats()),
)
FIELDS = st.sampled_from([field for field in BAD if field != "body"])


@given(st.dictionaries(FIELDS, ANYTHING, max_size=5), st.sampled_from(list(PRESETS)))
def test_what_passes_the_check_can_be_stored_and_read_again(
    fields: dict[str, Any], name: str
) -> None:
    draft = draft_with(fields)
    try:
        check(draft, get_preset(name))
    except InvalidInput:
        return
    stored = make_entry(draft, Queue(9, SCOPE, "jobs", settings=get_preset(name)))
    meta = msgspec.json.decode(stored.meta or "{}", type=Meta)
    for field in ("name", "headers", "labels", "content_type", "parent_id", "hops", "deadline"):
        assert getattr(meta, field) == getattr(draft, field)


PAUSED_SCOPE = Scope(1, "default", "default", paused=True)
A, P, D, X, GONE = (
    QueueState.ACTIVE,
    QueueState.PAUSED,
    QueueState.DRAINING,
    QueueState.ARCHIVED,
    QueueState.DELETED,
)
# (state, scope) to what a preset with pause_accepts says, and what one without says.
SWITCHES: dict[tuple[QueueState, Scope], tuple[str | None, str | None]] = {
    (A, SCOPE): (None, None),
    (P, SCOPE): (None, "QUEUE_PAUSED"),
    (D, SCOPE): ("QUEUE_DRAINING", "QUEUE_DRAINING"),
    (X, SCOPE): ("QUEUE_ARCHIVED", "QUEUE_ARCHIVED"),
    (GONE, SCOPE): ("QUEUE_ARCHIVED", "QUEUE_ARCHIVED"),
    (A, PAUSED_SCOPE): (None, "SCOPE_PAUSED"),
    (P, PAUSED_SCOPE): (None, "QUEUE_PAUSED"),
    (D, PAUSED_SCOPE): ("QUEUE_DRAINING", "QUEUE_DRAINING"),
}


@pytest.mark.parametrize("name", list(PRESETS))
@pytest.mark.parametrize(("state", "scope"), SWITCHES)
def test_a_queue_refuses_by_its_state_and_its_preset(
    name: str, state: QueueState, scope: Scope
) -> None:
    refused = explain_refusal(Queue(9, scope, "jobs", state, get_preset(name)))
    expected = SWITCHES[state, scope][name == "scaiqueue"]
    assert (None if refused is None else refused.code) == expected


def test_nobody_publishes_to_a_queue_of_the_system() -> None:
    assert isinstance(explain_refusal(Queue(1, SCOPE, "_dead_letter")), Forbidden)


@pytest.mark.parametrize("name", ["a", "_a", "mail.send-1_x", "x" * 128, "9"])
def test_a_good_name_passes(name: str) -> None:
    check_name("queue", name)


@pytest.mark.parametrize(
    "name", ["", "x" * 129, ".a", "-a", "a b", "a/b", "a\n", "ä", "a\x00", LONE_SURROGATE, None, 5]
)
def test_a_bad_name_is_refused_by_its_kind(name: object) -> None:
    with pytest.raises(InvalidInput, match="scope name"):
        check_name("scope", name)


@pytest.mark.parametrize(
    "value",
    ["x" * 10_000_000, HUGE, -HUGE, [HUGE], LONE_SURROGATE, b"x" * 100],
    ids=["long", "huge", "below", "nested", "surrogate", "bytes"],
)
def test_a_clipped_value_is_short_and_can_be_written(value: object) -> None:
    assert len(clip(value).encode()) <= 60
