"""The reference of the Python API says what the code does: every name, signature and option."""

import ast
import re
from ast import literal_eval
from typing import get_args

import msgspec
import pytest

import penstock
from penstock import AckPolicy, Context, Job, Message, Penstock, errors
from penstock.app import job, workflow
from penstock.app.enqueue import Enqueuer
from penstock.app.hooks import EVENTS
from penstock.app.subscribers import Router
from penstock.app.task import BaseTask, TaskOptions
from penstock.errors import InvalidInput
from penstock.worker import ack_policy, retry_strategies
from penstock.worker.handler import ExecutorKind
from penstock.worker.options import WorkerOptions
from tests.docs.tables import CODE, Signature, page, real, signatures, table, word

PAGE = page("reference/python.md")
# Used by other modules of the package, not by applications.
INSIDE = {
    "Penstock": {
        "add", "add_subscribers", "admit", "apublish_on", "decorate", "ensure_queues", "handlers",
        "make", "is_missing", "make_job", "prepare", "publish_calls", "publish_draft", "publish_on",
        "find_connection", "reconcile_schedules", "refuse_open_transaction",
        "report_changed_settings", "run", "ensure_subscription", "make_agents",
        "make_detector_agents", "note_transaction", "prepare_workflow",
        "ensure_queues_outside",
    },
    "BaseTask": {"call_in_place", "handler"},
    "Job": {"read", "wait_for_end"},
    "Router": {"decorate"},
    "Context": {"make_completion", "take_note"},
}  # fmt: skip
CLASSES: dict[str, tuple[type, ...]] = {
    "Penstock": (Enqueuer, Penstock),
    "BaseTask": (BaseTask,),
    "Job": (Job,),
    "Context": (Context,),
    "Message": (Message,),
    "Router": (Router,),
    "Strategy": (retry_strategies.Strategy,),
    "TimedStrategy": (retry_strategies.TimedStrategy,),
}
OPTIONS = table(PAGE.split("## WorkerOptions")[1], "option")


def blocks() -> ast.Module:
    return ast.parse("\n".join(CODE.findall(PAGE)))


def shown(name: str) -> dict[str, Signature]:
    """What the page shows of a class, over all its blocks."""
    found: dict[str, Signature] = {}
    for node in blocks().body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            found |= signatures(ast.Module(node.body, []))
    return found


def properties(kind: type) -> set[str]:
    return {name for name, value in vars(kind).items() if isinstance(value, property)}


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_is_shown_with_its_signature(name: str) -> None:
    listed = shown(name)
    listed.pop("__init__", None)
    kinds, left_out = CLASSES[name], INSIDE.get(name, set())
    left_out |= {each for kind in kinds for each in properties(kind)}
    assert listed == {
        method: signature for method, signature in real(*kinds).items() if method not in left_out
    }


def test_every_function_is_shown_with_its_signature() -> None:
    listed = signatures(
        ast.Module([node for node in blocks().body if not isinstance(node, ast.ClassDef)], [])
    )
    names = [each for each in penstock.__all__ if each.islower()]
    assert listed == {
        name: signature
        for module in (ack_policy, retry_strategies, job, workflow)
        for name, signature in in_module(module.__file__ or "").items()
        if name in names
    }


def in_module(file: str) -> dict[str, Signature]:
    with open(file, encoding="utf-8") as source:
        return signatures(ast.parse(source.read()))


def test_every_public_name_is_on_the_page() -> None:
    words = set(re.findall(r"\w+", PAGE))
    assert [name for name in penstock.__all__ if name not in words] == []


def test_every_attribute_of_a_context_and_a_message_is_named() -> None:
    hidden = {"lease", "renew_at", "limit", "until", "over", "settled", "settlement", "inside",
              "attached", "started_at", "ended_at", "seconds", "begun", "times", "steps",
              "durable"}  # fmt: skip
    context = {*Context.__struct_fields__, *properties(Context)} - hidden
    rows = table(PAGE, "attribute")
    assert {word(row["attribute"]) for row in rows} == {
        name for name in context if not name.startswith("_")
    }
    message = PAGE.split("## Message")[1].split("## ")[0]
    assert [name for name in properties(Message) if f"`{name}`" not in message] == []


@pytest.mark.parametrize(
    ("heading", "names"),
    [("executor", get_args(ExecutorKind)), ("policy", tuple(AckPolicy)), ("event", EVENTS)],
)
def test_every_choice_is_listed(heading: str, names: tuple[str, ...]) -> None:
    assert tuple(word(row[heading]) for row in table(PAGE, heading)) == names


def test_every_option_of_a_task_is_listed_with_its_default() -> None:
    listed = {
        word(row["option"]): literal_eval(word(row["default"])) for row in table(PAGE, "option")
    }
    assert listed == msgspec.structs.asdict(TaskOptions())


def test_every_option_of_a_worker_is_listed_with_its_default() -> None:
    listed = {word(row["option"]): literal_eval(word(row["default"])) for row in OPTIONS}
    assert listed == msgspec.structs.asdict(WorkerOptions())


@pytest.mark.parametrize(
    "row", [row for row in OPTIONS if row["range"]], ids=lambda row: row["option"]
)
def test_an_option_of_a_worker_is_taken_inside_its_range_and_refused_outside(
    row: dict[str, str],
) -> None:
    name = word(row["option"])
    least, most = (literal_eval(number) for number in row["range"].split(" to "))
    step = 1 if isinstance(literal_eval(word(row["default"])), int) else least / 2 or 0.1
    for value in (least, most):
        WorkerOptions(**{name: value})
    for value in (least - step, most + step):
        with pytest.raises(InvalidInput):
            WorkerOptions(**{name: value})


def test_every_error_named_on_the_page_exists() -> None:
    known = {name for name, value in vars(errors).items() if isinstance(value, type)}
    named = set(re.findall(r"`((?:[A-Z][a-z]+){2,})`", PAGE))
    ours = {*known, *penstock.__all__, "BaseTask", "WorkerOptions", "TimeoutError"}
    assert named - ours == set()
