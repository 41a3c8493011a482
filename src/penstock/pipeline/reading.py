"""The lake as DataFrames."""

from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline import lake as lakes
from penstock.pipeline import results
from penstock.pipeline.manifest import Manifest
from penstock.pipeline.results import ResultTable
from penstock.pipeline.schema import SCHEMAS, Table, spark_schema
from penstock.pipeline.tables import SCHEMAS as RESULT_SCHEMAS

OF_BOTH = ("queue_id", "tenant", "scope", "queue")


def read_lake(spark: SparkSession, lake: str, table: Table | Literal["joined"]) -> DataFrame:
    """Every row that a manifest names. A column that an older file does not have is null."""
    if table == "joined":
        return joined(read_lake(spark, lake, "message"), read_lake(spark, lake, "history"))
    found = lakes.find(lake)
    return read_parts(spark, paths(str(found.root), found.manifests(), table), table)


def read_results(spark: SparkSession, lake: str, table: ResultTable) -> DataFrame:
    """What the last run made; nothing before the first."""
    place = lakes.find(lake)
    found = results.newest(place)
    files = found.of(table) if found is not None else []
    if not files:
        return spark.createDataFrame([], RESULT_SCHEMAS[table])
    reader = spark.read.schema(RESULT_SCHEMAS[table])
    return reader.parquet(*(str(place.root / file.path) for file in files))


def paths(root: str, manifests: list[Manifest], table: Table) -> list[str]:
    parts = [part for each in manifests for part in each.parts if part.table == table]
    return [f"{root}/{part.path}" for part in parts]


def read_parts(spark: SparkSession, files: list[str], table: Table) -> DataFrame:
    schema = spark_schema(SCHEMAS[table])
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*files)


def joined(messages: DataFrame, history: DataFrame) -> DataFrame:
    """Attempts with the message each was about; a message that is not there leaves nulls."""
    return history.join(messages.drop(*OF_BOTH), "id", "left")
