"""Bad input of every verb is refused with an error of the tree, and nothing is written."""

from collections.abc import Awaitable, Callable
from math import inf, nan
from typing import Any

import pytest

from penstock.errors import BodyTooLarge
from penstock.model.message import (
    Dedup,
    Draft,
    Fail,
    Leased,
    Nack,
    Park,
    SettleCancelled,
    Settlement,
    SettleReject,
)
from penstock.model.queue import QueueState
from penstock.model.store_types import Completion, Extension, Lock
from tests.conformance.acts import ACTS
from tests.conformance.stage import Stage, refusal

pytestmark = pytest.mark.anyio

HUGE = 10**5000
LONG = "x" * 201
NOT_TEXT = [5, b"x", "\x00", "\ud800", LONG, ""]
NOT_SECONDS = [-1, nan, inf, "1", True, HUGE, 1e300]
NOT_MOMENTS = [-1, 1.5, "now", 2**53, True, HUGE]
NOT_COUNTS = [0, -1, 1.5, "1", True, 2**31, HUGE]


def key(text: Any, window: Any) -> Dedup:
    return Dedup(text, window)


BAD_FIELDS: dict[str, list[Any]] = {
    "body": ["text", None, 5, ["x"]],
    "type": [*NOT_TEXT, None],
    "priority": [1.5, "1", None, True, 2**70, -(2**70), nan, HUGE],
    "delay": [*NOT_SECONDS, None],
    "ttl": NOT_SECONDS,
    "run_at": NOT_MOMENTS,
    "expires_at": NOT_MOMENTS,
    "deadline": NOT_MOMENTS,
    "name": NOT_TEXT,
    "ordering_key": NOT_TEXT,
    "correlation_id": NOT_TEXT,
    "causation_id": NOT_TEXT,
    "traceparent": NOT_TEXT,
    "content_type": [*NOT_TEXT, None],
    "headers": ["x", 5, {1: "a"}, {"a": 1}, {"a": "x" * 9_000}, {"\x00": "a"}, {LONG: "a"}],
    "labels": ["x", 5, {1: "a"}, {"a": 1}, {"a": "\ud800"}, {"a": None}],
    "lease": [0, 0.01, 50_000, *NOT_SECONDS],
    "timeout": [0, *NOT_SECONDS],
    "max_attempts": NOT_COUNTS,
    "max_deliveries": NOT_COUNTS,
    "parent_id": [0, -1, 1.5, "1", 2**63],
    "hops": [-1, 1.5, "1", None, 1_001],
    "dedup": [
        "k",
        *(key(text, 60) for text in NOT_TEXT),
        *(key("k", window) for window in (0, *NOT_SECONDS)),
    ],
}
BAD_DRAFTS = [{name: value} for name, values in BAD_FIELDS.items() for value in values]
BAD_DRAFTS += [
    {"delay": 5, "run_at": 5},
    {"headers": {f"k{n}": "x" * 8_000 for n in range(20)}},
    {"queue": ""},
    {"queue": 5},
    {"queue": None},
]


async def test_a_bad_draft_is_refused(stage: Stage) -> None:
    before = await stage.all()
    for fields in BAD_DRAFTS:
        assert await refusal(stage.broker.publish(Draft(**fields))), clip(fields)
    assert await stage.all() == before


async def test_a_bad_draft_is_refused_alone(stage: Stage) -> None:
    for fields in BAD_DRAFTS:
        good, bad = await stage.broker.publish_many([Draft(), Draft(**fields)])
        assert (good.code, bool(bad.code)) == (None, True), clip(fields)
        assert bad.error
    assert await stage.places() == {"ready": len(BAD_DRAFTS)}


def clip(value: object) -> str:
    try:
        return repr(value)[:80]
    except ValueError:
        return "a huge number"


async def test_a_body_too_large_has_its_own_code(stage: Stage) -> None:
    await stage.queue("work", max_body=10)
    await stage.publish(b"x" * 10, queue="work")
    with pytest.raises(BodyTooLarge, match="11"):
        await stage.publish(b"x" * 11, queue="work")


Call = Callable[[Stage, Leased, Any], Awaitable[object]]


def claim(stage: Stage, *wants: Any, **how: Any) -> Awaitable[object]:
    return stage.broker.claim(*(wants or ("default",)), **({"consumer": "t"} | how))


def settle(stage: Stage, held: Leased, settlement: Settlement) -> Awaitable[object]:
    return stage.broker.settle(held, settlement)


BAD_LIMITS = [0, -1, 1_001, 1.5, "1", None, True, HUGE]
BAD_LEASES = [0, 0.01, 50_000, *NOT_SECONDS]
BAD_NAMES = ["", "a b", "a/b", "x" * 129, "-x", ".x", "ü", "\x00", 5, None, b"x"]

CALLS: dict[str, tuple[Call, list[Any]]] = {
    "claim limit": (lambda stage, _, bad: claim(stage, limit=bad), BAD_LIMITS),
    "claim lease": (lambda stage, _, bad: claim(stage, lease=bad), BAD_LEASES),
    "claim wait": (lambda stage, _, bad: claim(stage, wait=bad), [nan, "1", None, -1]),
    "claim consumer": (lambda stage, _, bad: claim(stage, consumer=bad), [*NOT_TEXT, None]),
    "claim merge": (lambda stage, _, bad: claim(stage, merge=bad), ["bogus", 5]),
    "claim queue": (lambda stage, _, bad: claim(stage, bad), ["nowhere", "", 5, None]),
    "claim queues": (lambda stage, _, bad: claim(stage, *["default"] * bad), [17, 100]),
    "claim types": (lambda stage, _, bad: claim(stage, ("default", [bad])), NOT_TEXT),
    "claim nothing": (lambda stage, _, bad: stage.broker.claim(*bad, consumer="t"), [()]),
    "complete": (lambda stage, held, bad: stage.broker.complete(held, bad), ["text", 5]),
    "complete many": (
        lambda stage, held, bad: stage.broker.complete_many([Completion(held.id, held.fence, bad)]),
        ["text", 5],
    ),
    "nack delay": (lambda stage, held, bad: settle(stage, held, Nack(delay=bad)), NOT_SECONDS),
    "nack max_attempts": (
        lambda stage, held, bad: settle(stage, held, Nack(max_attempts=bad)),
        NOT_COUNTS,
    ),
    "nack max_total": (
        lambda stage, held, bad: settle(stage, held, Nack(max_total=bad)),
        [-1, nan, "1"],
    ),
    "extend": (lambda stage, held, bad: stage.broker.extend(held, bad), [None, *BAD_LEASES]),
    "extend many": (
        lambda stage, held, bad: stage.broker.extend_many([Extension(held.id, held.fence, bad)]),
        [None, *BAD_LEASES],
    ),
    "progress percent": (
        lambda stage, held, bad: stage.broker.progress(held, bad),
        [-1, 101, nan, "1", True],
    ),
    "scope name": (lambda stage, _, bad: stage.admin.create_scope(bad), BAD_NAMES),
    "queue name": (lambda stage, _, bad: stage.admin.create_queue(bad), BAD_NAMES),
    "new name": (lambda stage, _, bad: stage.admin.rename_queue("default", bad), BAD_NAMES),
    "preset": (lambda stage, _, bad: stage.queue("new", bad), ["nope", "", 5, None]),
    "reference": (
        lambda stage, _, bad: stage.admin.get(bad),
        ["", "abc", "-1", "1.5", -1, 2**63, "9" * 5_000, HUGE, None, 1.5, "²"],
    ),
    "name": (
        lambda stage, _, bad: stage.admin.get(bad),
        ["/", "nowhere/n", "default/", "default/\x00", "default/\ud800"],
    ),
    "find limit": (lambda stage, _, bad: stage.admin.find(limit=bad), BAD_LIMITS),
    "find before": (lambda stage, _, bad: stage.admin.find(before=bad), ["1", 2**70, HUGE]),
    "find type": (lambda stage, _, bad: stage.admin.find(type=bad), [5, "\ud800"]),
    "find correlation": (
        lambda stage, _, bad: stage.admin.find(correlation_id=bad),
        [5, "\ud800"],
    ),
    "purge place": (lambda stage, _, bad: stage.admin.purge("default", bad), ["lease", "", "no"]),
    "purge limit": (
        lambda stage, _, bad: stage.admin.purge("default", "ready", limit=bad),
        [-1, "1", None, HUGE],
    ),
    "state": (lambda stage, _, bad: stage.admin.set_state("default", bad), [QueueState.DELETED]),
    "redrive body": (lambda stage, _, bad: stage.admin.redrive("default/dead", body=bad), ["x", 5]),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_bad_call_is_refused(stage: Stage, name: str) -> None:
    call, bads = CALLS[name]
    dead = await stage.dead(name="dead")
    id, waiting = await stage.publish(), await stage.publish()
    held = await stage.take()
    before = await stage.all(id, dead, waiting)
    for bad in bads:
        assert await refusal(call(stage, held, bad)), clip(bad)
    assert await stage.all(id, dead, waiting) == before


@pytest.mark.parametrize("name", ACTS)
async def test_a_lock_that_cannot_be_is_refused(stage: Stage, name: str) -> None:
    id = await stage.publish()
    leased = await stage.take()
    before = await stage.all(id)
    for lock in (Lock(2**63, 1), Lock(-1, 1), Lock(0, 0), Lock(id, 2**70), Lock(HUGE, HUGE)):
        assert await refusal(ACTS[name](stage.broker, lock)), clip(lock)
    assert await stage.all(id) == before
    await stage.broker.complete(leased)


@pytest.mark.parametrize("text", ["", "\ud800", "a\x00b", "x" * 1_000_000, "Traceback\n  ü 🦆"])
async def test_a_verdict_is_taken_whatever_its_text(stage: Stage, text: str) -> None:
    verdicts: list[Settlement] = [
        Nack(text),
        Nack(reason=text),
        Fail(text),
        SettleReject(text),
        SettleCancelled(text),
        Park(text),
    ]
    await stage.publish_each(len(verdicts))
    for leased, verdict in zip(await stage.claim(limit=9), verdicts, strict=True):
        await stage.broker.progress(leased, note=text)
        assert isinstance((await stage.record(leased.id)).note, str)
        await stage.broker.settle(leased, verdict)
        assert isinstance((await stage.record(leased.id)).error or "", str)
    assert "lease" not in await stage.places()
