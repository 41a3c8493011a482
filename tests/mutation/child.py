"""The pytest plugin of a run on a copy: tells which tests failed, and why."""

import os
import sys
from pathlib import Path

import msgspec
import pytest

import penstock

REPORT = "PENSTOCK_MUTATION_REPORT"


class Failure(msgspec.Struct, frozen=True):
    test: str
    reason: str
    # No test ran: the source cannot even be imported.
    collecting: bool = False


def pytest_configure(config: pytest.Config) -> None:
    # Tests of another copy's source would prove nothing.
    assert Path(penstock.__file__).is_relative_to(config.rootpath), penstock.__file__


def pytest_collection_finish() -> None:
    """Examples are drawn alike in every run, and not shrunk: that one fails is all that matters.

    Most runs draw none, and are spared the slow import.
    """
    if "hypothesis" in sys.modules:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutation", derandomize=True, database=None, phases=phases)
        settings.load_profile("mutation")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        tell(Failure(report.nodeid, reason_of(report)))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        tell(Failure(report.nodeid, reason_of(report), collecting=True))


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The first line of the error, or the last of what is told of it."""
    lines = report.longreprtext.splitlines() or [""]
    errors = [line[1:].strip() for line in lines if line.startswith("E  ")]
    return next((line for line in errors if line), lines[-1])


def tell(failure: Failure) -> None:
    with open(os.environ[REPORT], "ab") as file:
        file.write(msgspec.json.encode(failure) + b"\n")
