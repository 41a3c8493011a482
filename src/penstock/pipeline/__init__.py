"""The data pipeline on Spark: a store as DataFrames, its history in a lake, the two in balance."""

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
