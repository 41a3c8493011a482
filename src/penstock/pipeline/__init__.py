"""The data pipeline on Spark: a store as DataFrames, its history in a lake, the two in balance."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.pipeline.balance import Balance, balance
    from penstock.pipeline.compact import Compacted, compact
    from penstock.pipeline.extract import Extracted, extract
    from penstock.pipeline.reading import joined, read_lake, read_results
    from penstock.pipeline.replay import Replayed, Wish, replay
    from penstock.pipeline.rules import Rules
    from penstock.pipeline.run import Ran, run
    from penstock.pipeline.session import register, started
    from penstock.pipeline.work import completing

__all__ = [
    "Balance",
    "Compacted",
    "Extracted",
    "Ran",
    "Replayed",
    "Rules",
    "Wish",
    "balance",
    "compact",
    "completing",
    "extract",
    "joined",
    "read_lake",
    "read_results",
    "register",
    "replay",
    "run",
    "started",
]

HOMES = {
    "balance": ("Balance", "balance"),
    "compact": ("Compacted", "compact"),
    "extract": ("Extracted", "extract"),
    "reading": ("joined", "read_lake", "read_results"),
    "replay": ("Replayed", "Wish", "replay"),
    "rules": ("Rules",),
    "run": ("Ran", "run"),
    "session": ("register", "started"),
    "work": ("completing",),
}


class LazyPackage(ModuleType):
    """Imports a public name when it is first used: Spark takes long, and a report needs none.

    A submodule that is imported before does not hide the public function of the same name.
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
