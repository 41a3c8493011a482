"""The data pipeline on Spark: a store as DataFrames, its history in a lake, the two in balance."""

from penstock.pipeline.balance import Balance, balance
from penstock.pipeline.compact import Compacted, compact
from penstock.pipeline.extract import Extracted, extract
from penstock.pipeline.reading import joined, read_lake
from penstock.pipeline.session import register, started

__all__ = [
    "Balance",
    "Compacted",
    "Extracted",
    "balance",
    "compact",
    "extract",
    "joined",
    "read_lake",
    "register",
    "started",
]
