"""The reference says what the code does: every error, setting, verb, agent and violation."""

import re
from ast import literal_eval
from collections.abc import Iterator

import msgspec
import pytest

from penstock import errors, store
from penstock.agents import make_agents
from penstock.broker import messages, queues
from penstock.broker.consume import Consumer
from penstock.broker.local import Broker
from penstock.broker.publish import Publisher
from penstock.errors import InvalidInput, PenstockError
from penstock.model.message import State, Verb
from penstock.model.queue import QueueState
from penstock.model.settings import PRESETS, QueueSettings, change
from penstock.model.store_types import AnswerKind
from penstock.store.activity import StoreActivity, StoreExport
from penstock.store.waiting import StoreWaiting
from penstock.stores import open as open_store
from tests.checker import Kind
from tests.docs import fields
from tests.docs.tables import page, real, shown, table, word

RANGE = re.compile(r"(-?[\d.]+) to (-?[\d.]+)")
SETTINGS = table(page("reference/settings.md"), "setting")
RANGED = [row for row in SETTINGS if RANGE.match(row["range"])]


def tree(parent: type[PenstockError] = PenstockError) -> Iterator[type[PenstockError]]:
    yield parent
    for child in parent.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from tree(child)


def flat(settings: QueueSettings) -> dict[str, object]:
    """Settings by name, nested ones as `retry.count`."""
    found: dict[str, object] = {}
    for name, value in msgspec.to_builtins(settings).items():
        nested = value.items() if isinstance(value, dict) else ()
        found |= {f"{name}.{inner}": each for inner, each in nested}
        if not isinstance(value, dict):
            found[name] = value
    return found


def test_every_field_of_a_message_is_listed_with_its_limits() -> None:
    assert fields.PAGE.read_text() == fields.text(), "python -m tests.docs.fields"


def test_every_error_is_listed_with_its_code_in_the_order_of_the_tree() -> None:
    rows = table(page("reference/errors.md"), "class")
    listed = [(word(row["class"]), word(row["code"])) for row in rows]
    assert listed == [(error.__name__, error.code) for error in tree()]


def test_every_error_that_is_raised_has_a_meaning_and_a_remedy() -> None:
    groups = {PenstockError, errors.Refused, errors.Conflict}
    rows = table(page("reference/errors.md"), "class")
    assert all(row["meaning"] for row in rows)
    bare = {row["class"] for row in rows if not row["what to do"]}
    assert bare == {f"`{group.__name__}`" for group in groups}


def test_every_kind_of_answer_is_listed() -> None:
    rows = table(page("reference/errors.md"), "`AnswerKind`")
    assert [word(row["`AnswerKind`"]) for row in rows] == [kind.name for kind in AnswerKind]


def test_every_setting_is_listed_with_its_default() -> None:
    listed = {word(row["setting"]): literal_eval(word(row["default"])) for row in SETTINGS}
    assert listed == flat(QueueSettings())


@pytest.mark.parametrize("row", RANGED, ids=lambda row: row["setting"])
def test_a_setting_is_taken_inside_its_range_and_refused_outside(row: dict[str, str]) -> None:
    name, kind = word(row["setting"]), row["type"].split()[0]
    found = RANGE.match(row["range"])
    assert found
    least, most = (literal_eval(number) for number in found.groups())
    step = 1 if kind == "int" else max(1e-3, most * 1e-9)
    for value in (least, most):
        set_to(name, value)
    for value in (least - step, most + step):
        with pytest.raises(InvalidInput):
            set_to(name, value)


def set_to(name: str, value: float) -> None:
    if name.startswith("priority_"):
        change(QueueSettings(), {"priority_min": value, "priority_max": value})
        return
    outer, dot, inner = name.partition(".")
    change(QueueSettings(), {outer: {inner: value} if dot else value})


def test_the_presets_are_listed_where_they_differ() -> None:
    rows = table(page("reference/settings.md").split("## Presets")[1], "setting")
    presets = {name: flat(settings) for name, settings in PRESETS.items()}
    listed = {
        word(row["setting"]): {name: literal_eval(word(row[name])) for name in presets}
        for row in rows
    }
    assert listed == {
        setting: {name: preset[setting] for name, preset in presets.items()}
        for setting in presets["default"]
        if len({str(float_of(preset[setting])) for preset in presets.values()}) > 1
    }


def float_of(value: object) -> object:
    return float(value) if type(value) is int else value


def test_every_verb_of_the_broker_is_listed_with_its_signature() -> None:
    listed = shown(page("reference/verbs.md"))
    listed.pop("__init__")
    assert listed == real(Publisher, Consumer, Broker, queues.QueueAdmin, messages.Admin)


def test_every_verb_of_the_store_is_listed_with_its_signature() -> None:
    listed = shown(page("reference/store.md"))
    protocols = real(
        store.StoreHotPath,
        store.StoreUpkeep,
        store.StoreAdmin,
        store.StoreRecords,
        StoreActivity,
        StoreWaiting,
        StoreExport,
        store.Store,
    )
    assert {name: listed[name] for name in listed if not name.startswith("_")} == protocols


def test_every_verb_of_the_store_has_a_promise() -> None:
    text = page("reference/store.md")
    protocols = real(
        store.StoreHotPath,
        store.StoreUpkeep,
        store.StoreAdmin,
        store.StoreRecords,
        StoreActivity,
        StoreWaiting,
        StoreExport,
    )
    cells = " ".join(re.findall(r"^\| (`.*?) \|", text, re.MULTILINE))
    assert [name for name in protocols if f"`{name}`" not in cells] == []


@pytest.mark.anyio
async def test_every_agent_is_listed() -> None:
    async with await open_store("sqlite://") as opened:
        agents = make_agents(opened, "docs")
    rows = table(page("concepts.md"), "agent")
    listed = [(word(row["agent"]), seconds(row["interval"])) for row in rows]
    assert listed == [(agent.name, agent.every) for agent in agents]


def seconds(text: str) -> float:
    number, unit = re.findall(r"([\d.]+) (s|min)", text)[0]
    return float(number) * {"s": 1, "min": 60}[unit]


def test_every_state_is_listed() -> None:
    rows = table(page("concepts.md"), "state")
    listed = {word(row["state"]): row["final"] == "yes" for row in rows}
    assert listed == {state.value: state.final for state in State}


def test_every_verb_of_history_and_every_state_of_a_queue_is_named() -> None:
    text = page("concepts.md") + page("reference/verbs.md")
    words = [*Verb, *QueueState]
    assert [each for each in words if f"`{each}`" not in text and f"### {each}" not in text] == []


def test_every_violation_is_listed() -> None:
    rows = table(page("reference/checker.md"), "kind")
    assert {word(row["kind"]) for row in rows} == set(Kind)
    assert len(rows) == len(Kind)
