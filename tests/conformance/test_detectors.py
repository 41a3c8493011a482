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


def agent(stage: Stage, function: DetectorFunction, by: str = "a") -> CustomDetectors:
    detector = Detector("odd", "critical", function)
    return CustomDetectors(stage.store, stage.broker.directory, by, [detector])


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
    for by in ("a", "b", "a"):
        await agent(stage, find_odd, by).tick()
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
