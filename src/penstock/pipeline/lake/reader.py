"""Reads the lake as DataFrames."""

from collections.abc import Sequence
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.analytics.tables import SCHEMAS as RESULT_SCHEMAS
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake import result_tables
from penstock.pipeline.lake.audit_log import ACTS, list_files
from penstock.pipeline.lake.files import LakeFiles
from penstock.pipeline.lake.manifest import Manifest
from penstock.pipeline.lake.result_tables import ResultTable
from penstock.pipeline.lake.schema import SCHEMAS, Table, to_spark_schema

SHARED_COLUMNS = ("queue_id", "tenant", "scope", "queue")


def read_lake(spark: SparkSession, lake: str, table: Table | Literal["joined"]) -> DataFrame:
    """Reads a table of the lake. Columns that older files lack are null."""
    if table == "joined":
        return join_tables(read_lake(spark, lake, "message"), read_lake(spark, lake, "history"))
    found = lakes.find(lake)
    return read_parts(spark, found.files, list_paths(found.manifests(), table), table)


def read_results(spark: SparkSession, lake: str, table: ResultTable) -> DataFrame:
    """Reads a table of the last run; empty before the first run."""
    place = lakes.find(lake)
    found = result_tables.read_newest(place)
    files = found.list_files(table) if found is not None else []
    return read_files(spark, place.files, [file.path for file in files], RESULT_SCHEMAS[table])


def read_acts(spark: SparkSession, lake: str) -> DataFrame:
    """Reads the audit log of the lake, with the number and the hash of each entry's seal."""
    place = lakes.find(lake)
    found = read_files(spark, place.files, list_files(place), to_spark_schema(ACTS))
    # Two extracts at once may have written the same seals, where there is no lock.
    return found.dropDuplicates(["seal"])


def list_paths(manifests: Sequence[Manifest], table: Table) -> list[str]:
    return [part.path for each in manifests for part in each.parts if part.table == table]


def read_parts(
    spark: SparkSession, files: LakeFiles, names: Sequence[str], table: Table
) -> DataFrame:
    return read_files(spark, files, names, to_spark_schema(SCHEMAS[table]))


def read_files(
    spark: SparkSession, files: LakeFiles, names: Sequence[str], schema: Any
) -> DataFrame:
    return files.frame(spark, names, schema) if names else make_empty(spark, schema)


def make_empty(spark: SparkSession, schema: Any) -> DataFrame:
    """Avoids createDataFrame([]), which starts slow Python processes."""
    row = f.from_json(f.lit(""), schema).alias("row")
    return spark.range(0).select(row).select("row.*")


def join_tables(messages: DataFrame, history: DataFrame) -> DataFrame:
    """Joins history rows with their messages. Columns of a missing message are null."""
    return history.join(messages.drop(*SHARED_COLUMNS), "id", "left")
