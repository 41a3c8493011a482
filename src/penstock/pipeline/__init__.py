"""Spark data pipeline: reads stores as DataFrames, keeps history in a lake, reconciles the two."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.model.anomalies import AnomalyThresholds
    from penstock.pipeline.extraction.extract import ExtractResult, extract
    from penstock.pipeline.lake.compact import CompactResult, compact
    from penstock.pipeline.lake.reader import join_tables, read_acts, read_lake, read_results
    from penstock.pipeline.reconcile.reconcile import Balance, balance
    from penstock.pipeline.replay import ReplayRequest, ReplayResult, replay
    from penstock.pipeline.run import RunResult, run
    from penstock.pipeline.session import register, start_session
    from penstock.pipeline.spark.queue_stream import complete_after

__all__ = [
    "AnomalyThresholds",
    "Balance",
    "CompactResult",
    "ExtractResult",
    "ReplayRequest",
    "ReplayResult",
    "RunResult",
    "balance",
    "compact",
    "complete_after",
    "extract",
    "join_tables",
    "read_acts",
    "read_lake",
    "read_results",
    "register",
    "replay",
    "run",
    "start_session",
]

HOMES = {
    "reconcile.reconcile": ("Balance", "balance"),
    "lake.compact": ("CompactResult", "compact"),
    "extraction.extract": ("ExtractResult", "extract"),
    "lake.reader": ("join_tables", "read_acts", "read_lake", "read_results"),
    "replay": ("ReplayRequest", "ReplayResult", "replay"),
    "analytics.thresholds": ("AnomalyThresholds",),
    "run": ("RunResult", "run"),
    "session": ("register", "start_session"),
    "spark.queue_stream": ("complete_after",),
}


class LazyPackage(ModuleType):
    """Imports a public name on first use, because Spark is slow to import and a report needs none.

    Importing a submodule does not hide the public function of the same name.
    """

    def __getattr__(self, name: str) -> object:
        for home, names in HOMES.items():
            if name in names:
                value: object = getattr(import_module(f"{__name__}.{home}"), name)
                setattr(self, name, value)
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __setattr__(self, name: str, value: object) -> None:
        if name not in __all__ or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *__all__})


sys.modules[__name__].__class__ = LazyPackage
