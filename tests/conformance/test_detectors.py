"""Detectors of an app: they see each row once, and may fail without harm."""

import threading
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from penstock.agents import custom_detectors
from penstock.agents.custom_detectors import CustomDetectors
from penstock.app.app import Penstock
from penstock.errors import InvalidInput
from penstock.model.anomalies import Anomaly
from penstock.model.detectors import Detected, Detector, DetectorFunction, DetectorRow
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


def agent(stage: Stage, function: DetectorFunction) -> CustomDetectors:
    """The detector in another process."""
    detector = Detector("odd", "critical", function)
    return CustomDetectors(stage.store, stage.broker.directory, [detector])


async def anomalies(stage: Stage) -> list[Anomaly]:
    return (await stage.broker.anomalies.list()).anomalies


async def test_a_detector_sees_each_row_once_and_its_anomalies_are_listed(stage: Stage) -> None:
    seen: list[DetectorRow] = []

    def find_odd(rows: Sequence[DetectorRow]) -> Iterable[Detected]:
        seen.extend(rows)
        for row in rows:
            yield Detected(queue=row.queue, message_id=row.id, note="odd")

    await stage.completed()
    await agent(stage, find_odd).tick()
    first = [row.id for row in seen]
    ids = [await stage.completed() for _ in range(3)]
    for _ in range(3):
        await agent(stage, find_odd).tick()
    assert [row.id for row in seen] == first + ids
    (found,) = await anomalies(stage)
    assert (found.kind, found.severity, found.queue, found.text) == (
        "odd", "critical", "default", "odd",
    )  # fmt: skip
    assert found.count == len(seen)


async def test_a_detector_that_raises_is_off_after_three_times(stage: Stage) -> None:
    calls = []

    def fail(rows: Sequence[DetectorRow]) -> None:
        calls.append(len(rows))
        raise ValueError("secret text")

    await stage.completed()
    detectors = agent(stage, fail)
    for _ in range(5):
        await detectors.tick()
    assert len(calls) == 3
    (found,) = await anomalies(stage)
    assert (found.kind, found.consumer, found.count) == ("detector_failed", "odd", 1)
    assert "secret" not in str(found)


async def test_a_detector_that_hangs_holds_up_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custom_detectors, "TIMEOUT_S", 0.05)
    end = threading.Event()

    def hang(rows: Sequence[DetectorRow]) -> None:
        end.wait(60)

    await stage.completed()
    detectors = agent(stage, hang)
    try:
        for _ in range(4):
            await detectors.tick()
    finally:
        end.set()
    assert [each.kind for each in await anomalies(stage)] == ["detector_failed"]


async def test_a_detector_that_raises_is_off_in_each_process(stage: Stage) -> None:
    calls = []

    def fail(rows: Sequence[DetectorRow]) -> None:
        calls.append(len(rows))
        raise ValueError("no")

    await stage.completed()
    processes = [agent(stage, fail), agent(stage, fail)]
    for detectors in processes:
        for _ in range(4):
            await detectors.tick()
    for _ in range(4):
        for detectors in processes:
            await detectors.tick()
    assert len(calls) == 6
    await agent(stage, fail).tick()
    assert len(calls) == 7


async def test_a_detector_that_fails_and_recovers_stays_on(stage: Stage) -> None:
    calls = []

    def fail_twice(rows: Sequence[DetectorRow]) -> None:
        calls.append(len(rows))
        if len(calls) % 3:
            raise ValueError("no")

    detectors = agent(stage, fail_twice)
    for _ in range(3):
        await stage.completed()
        for _ in range(3):
            await detectors.tick()
    assert len(calls) == 9
    assert await anomalies(stage) == []


async def test_a_detector_names_the_scope_of_a_queue(stage: Stage) -> None:
    def find_odd(rows: Sequence[DetectorRow]) -> Iterable[Detected]:
        return [
            Detected(scope="billing", queue="mail"),
            Detected(queue="mail", count=2),
            Detected(queue="nowhere"),
        ]

    await stage.broker.admin.create_scope("billing")
    await stage.queue("mail")
    await stage.broker.admin.create_queue("mail", scope="billing")
    await stage.completed()
    await agent(stage, find_odd).tick()
    (here,) = await anomalies(stage)
    (there,) = (await stage.broker.anomalies.list(scope="billing")).anomalies
    assert (here.scope, here.queue, here.count) == ("default", "mail", 2)
    assert (there.scope, there.queue, there.count) == ("billing", "mail", 1)


async def test_a_queue_mutes_and_turns_off_the_kinds_of_detectors_that_have_run(
    stage: Stage,
) -> None:
    def find_odd(rows: Sequence[DetectorRow]) -> Iterable[Detected]:
        return [Detected(queue="default"), Detected(queue="mail")]

    await stage.queue("mail")
    with pytest.raises(InvalidInput, match="unknown anomaly odd"):
        await stage.admin.set_queue("mail", anomalies={"mute": ["odd"]})
    detectors = agent(stage, find_odd)
    await detectors.tick()
    await stage.admin.set_queue("mail", anomalies={"mute": ["odd"]})
    await stage.admin.set_queue("default", anomalies={"off": ["odd"]})
    await stage.completed()
    await detectors.tick()
    (found,) = await anomalies(stage)
    assert (found.kind, found.queue, found.muted) == ("odd", "mail", True)


@pytest.mark.parametrize("name", ["lock_stolen", "With Space", "", "x" * 41])
def test_a_detector_has_a_name_of_its_own(name: str) -> None:
    app = Penstock("sqlite://")
    with pytest.raises(InvalidInput):
        app.detector(name)(lambda rows: None)


def test_an_app_has_a_detector_once() -> None:
    app = Penstock("sqlite://")
    app.detector("odd")(lambda rows: None)
    with pytest.raises(InvalidInput, match="two detectors"):
        app.detector("odd")


def test_a_detector_without_a_name_is_refused() -> None:
    detector: Any = Penstock("sqlite://").detector
    with pytest.raises(InvalidInput, match="name the anomaly"):
        detector(lambda rows: [])
