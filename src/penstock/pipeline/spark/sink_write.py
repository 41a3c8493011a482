"""Writes rows to the sink and returns the counts."""

import uuid

import msgspec
from msgspec.structs import asdict
from pyspark.sql import DataFrame

from penstock.pipeline.lake.files import LakeFiles
from penstock.pipeline.spark.sink_options import SinkOptions
from penstock.pipeline.spark.sink_publish import SinkResult


def check_rows(rows: DataFrame, target: SinkOptions) -> None:
    """Validates the rows without publishing any."""
    write(rows, msgspec.structs.replace(target, publish=False))


def send_rows(rows: DataFrame, target: SinkOptions, files: LakeFiles) -> SinkResult:
    """Publishes the rows. The counts come back in a lake file, because the Spark driver may be
    another machine."""
    report = f"_replay-{uuid.uuid4().hex}.json"
    try:
        write(rows, msgspec.structs.replace(target, report=f"{files.where}/{report}"))
        return msgspec.json.decode(files.read(report) or b"", type=SinkResult)
    finally:
        files.remove([report])


def write(rows: DataFrame, target: SinkOptions) -> None:
    options = {name: value for name, value in asdict(target).items() if value is not None}
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value)
             for name, value in options.items()}  # fmt: skip
    rows.write.format("penstock").options(**texts).mode("append").save()
