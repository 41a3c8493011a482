"""Spark schemas of the result tables."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.pipeline.lake.result_tables import ResultTable

QUEUE = "queue_id long, tenant string, scope string, queue string"
HISTOGRAM = "array<struct<bucket:int,count:bigint>>"

SCHEMAS: dict[ResultTable, str] = {
    "attempt": f"""position long, id long, {QUEUE}, type string, priority long,
        created_at timestamp, ready_at timestamp, claimed_at timestamp, at timestamp,
        due_at timestamp, verb string, state string, reason string, error string,
        fingerprint string, attempts long, deliveries long, consumer string, final boolean,
        correlation_id string, body_bytes long, lease double, attempts_left int, rested string,
        wait double, run double, alike int, alike_consumers int""",
    "metrics_hour": f"""hour timestamp, {QUEUE}, type string, published long, attempts long,
        completed long, failures long, retried long, lost long, failed long, dead long,
        expired long, cancelled long, redriven long, handed_back long, flash long,
        wait_sum double, run_sum double, wait_max double, run_max double,
        failure_rate double, retry_rate double,
        wait_p50 double, wait_p95 double, wait_p99 double,
        run_p50 double, run_p95 double, run_p99 double,
        wait_histogram {HISTOGRAM}, run_histogram {HISTOGRAM}""",
    "backlog_minute": f"""minute timestamp, {QUEUE}, arrived long, left long, died long,
        backlog long, dead long""",
    "consumer_hour": f"""hour timestamp, consumer string, {QUEUE}, attempts long, completed long,
        failures long, lost long, busy double, run_max double, first_at timestamp,
        last_at timestamp""",
    "anomaly": f"""id string, hour timestamp, kind string, severity string, {QUEUE}, type string,
        consumer string, count long, value double, threshold double, message_id long,
        first_at timestamp, last_at timestamp""",
    "triage": f"""id string, day_at timestamp, {QUEUE}, type string, fingerprint string,
        count long, messages long, dead long, first_at timestamp, last_at timestamp,
        message_id long, error string, template string,
        attributes array<struct<name:string,value:string,share:double,usual:double>>""",
}
# The column that determines the day of a row.
MOMENTS: dict[ResultTable, str] = {
    "attempt": "at",
    "metrics_hour": "hour",
    "backlog_minute": "minute",
    "consumer_hour": "hour",
    "anomaly": "hour",
    "triage": "day_at",
}


def shape_table(rows: DataFrame, table: ResultTable) -> DataFrame:
    """Selects the columns of the table in their order, all nullable, and the day of the row.

    Spark writes non-nullable columns as required, so files of one table would differ. Every row
    has a moment, but Spark does not know it, so this condition makes each column nullable.
    """
    moment = MOMENTS[table]
    has_moment = f.col(moment).isNotNull()
    columns = (column.split(maxsplit=1) for column in split(SCHEMAS[table]))
    nullable = [f.when(has_moment, f.col(name).cast(kind)).alias(name) for name, kind in columns]
    return rows.select(*nullable, f.date_format(moment, "yyyy-MM-dd").alias("day"))


def split(schema: str) -> list[str]:
    """Splits at commas between columns, not at those inside a type."""
    parts, depth, start = [], 0, 0
    for at, character in enumerate(schema):
        depth += (character == "<") - (character == ">")
        if character == "," and depth == 0:
            parts.append(schema[start:at].strip())
            start = at + 1
    return [*parts, schema[start:].strip()]
