"""The one rule: which scene is next, how often each, and what it is given."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from penstock.model.message import After
from penstock.model.queue import QueueState
from penstock.model.waiting import Hold, StepRecord
from tests.conformance.machine.queues import CHANGES
from tests.conformance.machine.scenes import Scenes
from tests.conformance.machine.wishes import (
    TYPES,
    Theme,
    Wish,
    batches,
    ended,
    endings,
    governed,
    held,
    ids,
    lines,
    locks,
    mostly,
    settlements,
    themes,
    waiting,
    wishes,
)

Scene = tuple[str, dict[str, Any]]
Possible = Callable[["Machine"], object]
AGENTS = ("sweep", "promote", "expire", "sweep_keys", "look", "look_at_everything")
MEANWHILE = ("extend", "extend a little", "cancel", "void", "complete", "begin", "retry", "steal")
WORDS = ("extend", "begin", "half", 50.0, 0.0)
ORDERS = ("cancel", "cancel", "edit", "edit", "rerank", "purge", "switch", "pause", "change")
STOPPED = (QueueState.PAUSED, QueueState.DRAINING, QueueState.ARCHIVED)
PLACES = (["ready"], ["scheduled"], ["dead"], ["ready", "scheduled", "dead"])

HOLDS = (
    (Hold(kind="moment", delay=3.0),),
    (Hold(kind="moment", delay=0.0),),
    (Hold(kind="signal", name="go"),),
    (Hold(kind="signal", name="go", delay=10.0),),
    (Hold(kind="signal", name="stop"), Hold(kind="moment", delay=1.0)),
)
POLICIES = (
    After(),
    After(),
    After(policy="any"),
    After(policy="any", need=2),
    After(policy="settled"),
    After(policy="settled", on_dead="settle"),
    After(on_dead="settle"),
)
STEP = (StepRecord(name="charge", key="1", body=b"1", position=1),)

WAKES = ("go", "stop", "look", "look", "decide", "cancel", "expire", "travel")
steps = st.sampled_from(["charge", "go", "stop"])
limits = st.sampled_from([1, 2, 4, 20])
meanwhile = st.lists(st.sampled_from(MEANWHILE), max_size=2)

SCENES: dict[str, tuple[int, Possible, dict[str, st.SearchStrategy[Any]]]] = {
    "publish_batch": (
        3,
        lambda machine: True,
        {"batch": batches, "atomic": mostly(False, True), "alike": mostly(False, True)},
    ),
    "take": (
        3,
        lambda machine: machine.model.claimable(),
        {
            "names": lines,
            "limit": limits,
            "lease": mostly(None, 3.0),
            "types": st.sampled_from([(), (), TYPES[:1], TYPES]),
            "begins": st.booleans(),
            "merge": st.booleans(),
        },
    ),
    "work": (
        3,
        lambda machine: machine.model.claimable(),
        {
            "names": lines,
            "limit": limits,
            "begins": st.booleans(),
            "ends": st.lists(endings, min_size=3, max_size=8),
        },
    ),
    "drain": (
        1,
        lambda machine: machine.model.claimable(),
        {"names": lines, "end": endings},
    ),
    "release_badly": (
        1,
        lambda machine: machine.model.claimable(),
        {"rounds": st.integers(1, 5), "limit": limits, "end": settlements},
    ),
    "end": (
        3,
        lambda machine: machine.locks,
        {"batch": st.lists(st.tuples(locks, endings), min_size=1, max_size=4)},
    ),
    "say": (
        2,
        lambda machine: machine.locks,
        {"lock": locks, "words": st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)},
    ),
    "hesitate": (
        2,
        lambda machine: machine.held(),
        {
            "lock": held,
            "settlement": settlements,
            "meanwhile": meanwhile,
            "later": mostly(False, True),
        },
    ),
    "crash": (
        2,
        lambda machine: machine.held(),
        {"limit": mostly(100, 1), "meanwhile": meanwhile},
    ),
    "pass_time": (
        3,
        lambda machine: True,
        {
            "seconds": st.sampled_from([1.0, 3.0, 10.0, 31.0, 90.0]),
            "agents": st.sets(st.sampled_from(AGENTS)),
            "resume": mostly(True, False),
        },
    ),
    "suspend": (
        3,
        lambda machine: machine.held(),
        {
            "lock": held,
            "holds": st.sampled_from(HOLDS),
            "steps": st.sampled_from([(), STEP]),
            "then": st.lists(st.sampled_from(WAKES), max_size=3),
        },
    ),
    "depend": (
        3,
        lambda machine: True,
        {
            "batch": batches,
            "after": st.sampled_from(POLICIES),
            "by_name": st.booleans(),
            "then": st.sampled_from(["look", "cancel", "work", "reject"]),
        },
    ),
    "govern": (
        2,
        lambda machine: True,
        {
            "batch": st.lists(governed, min_size=1, max_size=4),
            "serve": st.sampled_from([0, 0, 2, 20]),
            "end": endings,
        },
    ),
    "rouse": (
        2,
        lambda machine: machine.model.waiting_ids(),
        {"id": waiting, "acts": st.lists(st.sampled_from(WAKES), min_size=1, max_size=3)},
    ),
    "stale_wait": (1, lambda machine: machine.locks, {"lock": locks, "name": steps}),
    "repair_a_little": (
        2,
        lambda machine: machine.model.due() or machine.model.expirable(),
        {"limit": st.sampled_from([1, 2])},
    ),
    "revive": (
        2,
        lambda machine: machine.model.at("dead"),
        {
            "batch": st.lists(ended, min_size=1, max_size=4),
            "how": st.sampled_from(["in place", "one", "edited", "never"]),
        },
    ),
    "operate": (
        2,
        lambda machine: True,
        {
            "order": st.sampled_from(ORDERS),
            "names": lines,
            "id": ids,
            "force": st.booleans(),
            "places": st.sampled_from(PLACES),
            "state": mostly(QueueState.ACTIVE, *STOPPED),
            "changes": st.sampled_from(CHANGES),
        },
    ),
}


def next_scenes(machine: "Machine") -> st.SearchStrategy[Scene]:
    names = [
        name
        for name, (weight, possible, _) in SCENES.items()
        if possible(machine)
        for _ in range(weight)
    ]
    return st.sampled_from(names).flatmap(choose_scene)


def choose_scene(name: str) -> st.SearchStrategy[Scene]:
    return st.tuples(st.just(name), st.fixed_dictionaries(SCENES[name][-1]))


openings: st.SearchStrategy[tuple[Theme, list[Wish]]] = themes.flatmap(
    lambda theme: st.tuples(st.just(theme), st.lists(wishes(theme), min_size=3, max_size=10))
)
scenes: st.SearchStrategy[Scene] = st.runner().flatmap(next_scenes)


class Machine(Scenes):
    @initialize(opening=openings)
    def open(self, opening: tuple[Theme, list[Wish]]) -> None:
        self.theme, batch = opening
        self.publish_batch(batch)

    # One rule and not many: Hypothesis would leave out half of them in every example, and a
    # message that nobody can claim teaches little.
    @rule(scene=scenes)
    def play(self, scene: Scene) -> None:
        name, arguments = scene
        getattr(self, name)(**arguments)
