"""The presets have the numbers of the contract, and no wrong setting gets in."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidInput, NotYet
from penstock.model.settings import (
    PRESETS,
    Backoff,
    QueueSettings,
    RetrySettings,
    change,
    get_preset,
)

# semantics.md section 6, row by row. Where the contract leaves the choice to the queue
# (the ordering of scaiqueue, the strategy of faststream), the default stands.
NAMES = ("scaiqueue", "relay", "codeq", "faststream", "queuectl", "default")
TABLE: dict[str, tuple[object, ...]] = {
    "ordering": ("priority", "priority", "priority", "ready_time", "priority", "priority"),
    "retry.count": (
        "deliveries",
        "deliveries",
        "deliveries",
        "attempts",
        "attempts",
        "attempts",
    ),
    "max_attempts": (5, 3, 5, 5, 3, 5),
    "retry.on_expiry": ("keep", "count", "backoff", "keep", "keep", "keep"),
    "deliveries_limit": (8, 3, 5, 8, 6, 8),
    "lease": (30, 30, 300, 600, 300, 30),
    "backoff.kind": (
        "exponential",
        "none",
        "exponential",
        "exponential",
        "exponential",
        "exponential",
    ),
    "backoff.max": (900, 3600, 900, 3600, 3600, 3600),
    "backoff.jitter": ("full", "none", "full", "equal", "none", "equal"),
    "pause_accepts": (False, True, True, True, True, True),
    "aging": (True, False, False, False, False, False),
    "filter_by_type": (False, False, True, False, False, False),
    "clamp": (False, False, True, False, False, False),
    "merge": ("rotate", "rotate", "rotate", "rank", "rotate", "rotate"),
    "shell": (False, False, False, False, True, False),
    "retention": (3_600, 604_800, 604_800, 604_800, 604_800, 604_800),
    "dead_retention": (None,) * 6,
    "keep_results": (86_400,) * 6,
    "priority_min": (0, 0, 0, -1_000_000, -1_000_000, -1_000_000),
    "priority_max": (5000, 9, 9, 1_000_000, 1_000_000, 1_000_000),
}


@pytest.mark.parametrize("path", TABLE)
def test_each_preset_has_the_numbers_of_the_contract(path: str) -> None:
    assert {name: look(get_preset(name), path) for name in NAMES} == dict(
        zip(NAMES, TABLE[path], strict=True)
    )


def look(settings: QueueSettings, path: str) -> object:
    found: object = settings
    for name in path.split("."):
        found = getattr(found, name)
    return found


def test_the_presets_are_the_five_systems_and_the_default() -> None:
    assert sorted(PRESETS) == sorted(NAMES)


def test_an_unknown_preset_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(InvalidInput, match=r"'relais'; expected one of codeq, .*scaiqueue"):
        get_preset("relais")


@pytest.mark.parametrize("name", NAMES)
def test_no_change_leaves_a_preset_as_it_is(name: str) -> None:
    assert change(get_preset(name), {}) == get_preset(name)


def test_a_nested_change_is_laid_over_and_replaces_nothing_else() -> None:
    changed = change(get_preset("codeq"), {"backoff": {"max": 60}, "retry": {"count": "attempts"}})
    assert changed == QueueSettings(
        retry=RetrySettings(count="attempts", on_expiry="backoff"),
        max_deliveries=5,
        lease=300.0,
        backoff=Backoff(initial=10, factor=2, max=60, jitter="full"),
        priority_min=0,
        priority_max=9,
        clamp=True,
        filter_by_type=True,
        dedup_by="key",
        require_result=True,
    )


def test_a_whole_nested_value_may_be_given() -> None:
    assert (
        change(QueueSettings(), {"retry": RetrySettings(count="deliveries")}).retry.count
        == "deliveries"
    )


def test_a_change_leaves_the_old_settings_alone() -> None:
    old = get_preset("default")
    change(old, {"backoff": {"initial": 9}})
    assert old == QueueSettings()


def test_an_optional_setting_can_be_taken_back() -> None:
    assert change(get_preset("scaiqueue"), {"max_deliveries": None}).deliveries_limit == 8
    assert change(get_preset("queuectl"), {"max_deliveries": None}).deliveries_limit == 6


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"colour": "red"}, "colour"),
        ({"backoff": {"colour": 1}}, "colour"),
        ({"retry": {"colour": 1}}, "colour"),
        ({"ordering": "lifo"}, "ordering"),
        ({"overflow": "drop"}, "overflow"),
        ({"merge": "zip"}, "merge"),
        ({"retry": {"count": "runs"}}, "retry.count"),
        ({"retry": {"on_expiry": "forget"}}, "retry.on_expiry"),
        ({"backoff": {"kind": "cubic"}}, "backoff.kind"),
        ({"max_attempts": "5"}, "max_attempts"),
        ({"max_attempts": 5.5}, "max_attempts"),
        ({"max_attempts": True}, "max_attempts"),
        ({"max_attempts": None}, "max_attempts"),
        ({"lease": "30"}, "lease"),
        ({"lease": True}, "lease"),
        ({"lease": 10**5000}, "lease"),
        ({"pause_accepts": 1}, "pause_accepts"),
        ({"retry": None}, "retry"),
        ({"retry": "attempts"}, "retry"),
        ({"backoff": []}, "backoff"),
        ({"backoff": {"jitter": 1}}, "backoff.jitter"),
    ],
)
def test_an_unknown_setting_or_a_wrong_type_is_refused_by_name(
    changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        change(QueueSettings(), changes)


NAN, INFINITE = float("nan"), float("inf")
OUT_OF_RANGE: dict[str, tuple[object, ...]] = {
    "max_attempts": (0, -1, 32_768, 10**30),
    "max_deliveries": (0, -1, 32_768, 10**30),
    "max_waits": (0, -1, 10_001),
    "max_depth": (0, -1, 2**63),
    "max_body": (0, 64 * 1_048_576 + 1),
    "lease": (0, 0.09, 43_201, NAN, INFINITE),
    "retention": (-1, NAN, INFINITE, 1e300),
    "dead_retention": (-1, NAN, INFINITE, 1e300),
    "keep_results": (-1, NAN, INFINITE, 1e300),
    "priority_min": (-(2**31) - 1,),
    "priority_max": (2**31,),
    "seconds_per_level": (-1, NAN, INFINITE, 1e30),
    "backoff.initial": (-1, NAN, INFINITE),
    "backoff.factor": (0.99, 1001, NAN),
    "backoff.step": (-1, NAN, INFINITE),
    "backoff.max": (-1, NAN, INFINITE, 1e300),
    "backoff.max_total": (-1, NAN),
    "backoff.jitter": ("", "some", "add", "add:", "add:x", "add:1.1", "sym:-0.1", "add:nan"),
}


@pytest.mark.parametrize(
    ("path", "value"),
    [(path, value) for path, values in OUT_OF_RANGE.items() for value in values],
)
def test_a_setting_out_of_its_range_is_refused_by_name(path: str, value: object) -> None:
    with pytest.raises(InvalidInput, match=path):
        change(QueueSettings(), nest(path, value))


EDGES: dict[str, tuple[object, ...]] = {
    "max_attempts": (1, 32_767),
    "max_deliveries": (1, 32_767),
    "max_depth": (1, 2**53),
    "max_body": (1, 64 * 1_048_576),
    "lease": (0.1, 43_200.0),
    "retention": (0.0,),
    "dead_retention": (0.0,),
    "priority_min": (-(2**31),),
    "priority_max": (2**31 - 1,),
    "seconds_per_level": (0.0, 86_400.0),
    "backoff.factor": (1.0, 1000.0),
    "backoff.jitter": ("none", "full", "equal", "add:0", "add:1", "sym:0.25"),
}


@pytest.mark.parametrize(
    ("path", "value"), [(path, value) for path, values in EDGES.items() for value in values]
)
def test_the_edges_of_a_range_are_inside_it(path: str, value: object) -> None:
    assert look(change(QueueSettings(), nest(path, value)), path) == value


def nest(path: str, value: object) -> dict[str, Any]:
    outer, dot, inner = path.partition(".")
    return {outer: {inner: value}} if dot else {outer: value}


@pytest.mark.parametrize("changes", [{"ordering": "fair"}])
def test_what_is_not_built_is_refused_and_never_ignored(changes: dict[str, Any]) -> None:
    ((name, word),) = changes.items()
    with pytest.raises(NotYet, match=f"{name} '{word}'") as refused:
        change(QueueSettings(), changes)
    assert refused.value.code == "NOT_YET"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"priority_min": 5, "priority_max": 4}, "priority_min"),
        ({"seconds_per_level": 1.0, "ordering": "fifo"}, "seconds_per_level"),
        ({"seconds_per_level": 1.0, "aging": True}, "seconds_per_level"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        change(QueueSettings(), changes)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)
SETTING = st.sampled_from([*QueueSettings.__struct_fields__, "colour"])


@given(st.dictionaries(SETTING, JSON, max_size=4))
def test_any_change_gives_settings_or_an_invalid_input(changes: dict[str, Any]) -> None:
    try:
        changed = change(QueueSettings(), changes)
    except InvalidInput:
        return
    assert isinstance(changed, QueueSettings)


def test_settings_are_taken_in_the_words_of_scaiqueue() -> None:
    words = {"visibility_timeout_s": 60, "max_retries": 2, "consumer_mode": "competing"}
    assert change(QueueSettings(), words) == change(
        QueueSettings(), {"lease": 60, "max_attempts": 2}
    )
    with pytest.raises(InvalidInput, match="max_retries and max_attempts are the same setting"):
        change(QueueSettings(), {"max_attempts": 3, "max_retries": 2})
