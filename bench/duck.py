"""What a run of the pipeline makes, asked of DuckDB: the tables, from the same files.

A little less of them: no unusual hours, fewer kinds of anomalies, fewer patterns of errors.
"""

from pathlib import Path
from time import perf_counter

import duckdb

FAILED = "('fail', 'nack', 'reject', 'reclaim')"
HOUR = "date_trunc('hour', \"at\")"
TEMPLATE = r"""regexp_replace(regexp_replace(regexp_replace(
    error, '''[^'']{0,200}''', '<text>', 'g'),
    '(/[\w.@-]+){2,}/?', '<path>', 'g'), '\d+([.:,]\d+)*', '<n>', 'g')"""
# Each is written to a file, as the pipeline does.
STEPS = {
    "attempt": f"""
        WITH rests AS (SELECT id, list({{'position': position, 'ready_at': coalesce(due_at, "at"),
                              'state': state}}) AS rests FROM history WHERE NOT final GROUP BY id)
        SELECT h.*, m.type, m.created_at, octet_length(m.body) AS body_bytes,
            list_filter(r.rests, lambda x: x.position < h.position) AS earlier,
            coalesce(list_max(earlier).ready_at, m.created_at) AS ready_at,
            epoch(h.claimed_at - coalesce(list_max(earlier).ready_at, m.created_at)) AS wait,
            epoch(h."at" - h.claimed_at) AS run, {TEMPLATE} AS template,
            sha256({TEMPLATE}) AS fingerprint
        FROM history h LEFT JOIN message m USING (id) LEFT JOIN rests r USING (id)""",
    "metrics_hour": f"""
        SELECT * FROM (
            SELECT {HOUR} AS hour, queue_id, type, max(queue) AS queue, count(*) AS attempts,
                count(*) FILTER (state = 'completed') AS completed,
                count(*) FILTER (verb IN {FAILED}) AS failures,
                count(*) FILTER (verb IN {FAILED} AND state IN ('ready', 'scheduled')) AS retried,
                count(*) FILTER (verb = 'reclaim') AS lost, sum(run), sum(wait), max(run),
                max(wait),
                quantile_cont(wait, [0.5, 0.95, 0.99]) AS wait,
                quantile_cont(run, [0.5, 0.95, 0.99]) AS run
            FROM attempt GROUP BY ALL) FULL JOIN (
            SELECT date_trunc('hour', created_at) AS hour, queue_id, type, count(*) AS published
            FROM message GROUP BY ALL) USING (hour, queue_id, type)""",
    "consumer_hour": f"""
        SELECT {HOUR} AS hour, consumer, queue_id, count(*), count(*) FILTER (state = 'completed'),
            count(*) FILTER (verb IN {FAILED}), sum(run), max(run), min(claimed_at), max("at")
        FROM attempt GROUP BY ALL""",
    "backlog_minute": """
        SELECT minute, queue_id, sum(change) OVER (PARTITION BY queue_id ORDER BY minute) FROM (
            SELECT minute, queue_id, sum(change) AS change FROM (
                SELECT date_trunc('minute', created_at) AS minute, queue_id, 1 AS change
                FROM message
                UNION ALL
                SELECT date_trunc('minute', "at"), queue_id, -1 FROM attempt
                WHERE final OR state = 'dead')
            GROUP BY ALL)""",
    "anomaly": f"""
        SELECT hour, kind, queue_id, type, count(*), max(value), arg_max(id, value) FROM (
            SELECT {HOUR} AS hour, queue_id, type, id, unnest([
                CASE WHEN run > 10 THEN {{'kind': 'slow', 'value': run}} END,
                CASE WHEN verb = 'reclaim' THEN {{'kind': 'lost', 'value': run}} END,
                CASE WHEN state = 'dead' THEN {{'kind': 'dead', 'value': run}} END,
                CASE WHEN run > 90 THEN {{'kind': 'overdue', 'value': run}} END,
                CASE WHEN body_bytes > 5000 THEN {{'kind': 'large', 'value': run}} END],
                recursive := true)
            FROM attempt WHERE run > 10 OR verb = 'reclaim' OR state = 'dead' OR body_bytes > 5000)
        WHERE kind IS NOT NULL GROUP BY ALL""",
    "burst": """
        SELECT consumer, queue_id, hour, max(several) FROM (
            SELECT *, sum(one) OVER (PARTITION BY consumer, queue_id, hour ORDER BY second
                RANGE BETWEEN INTERVAL 4 SECONDS PRECEDING AND CURRENT ROW) AS several
            FROM (SELECT consumer, queue_id, date_trunc('second', claimed_at) AS second,
                         date_trunc('hour', claimed_at) AS hour, count(*) AS one
                  FROM attempt GROUP BY ALL))
        GROUP BY ALL HAVING max(several) >= 50""",
    "bulk": """
        SELECT queue_id, type, hour, max(several) FROM (
            SELECT *, sum(one) OVER (PARTITION BY queue_id, type, hour ORDER BY second
                RANGE BETWEEN INTERVAL 4 SECONDS PRECEDING AND CURRENT ROW) AS several
            FROM (SELECT queue_id, type, date_trunc('second', created_at) AS second,
                         date_trunc('hour', created_at) AS hour, count(*) AS one
                  FROM message GROUP BY ALL))
        GROUP BY ALL HAVING max(several) >= 1000""",
    "triage": f"""
        SELECT date_trunc('day', "at") AS day, queue_id, type, fingerprint, count(*),
            count(DISTINCT id), min("at"), max("at"), arg_min(error, position), any_value(template)
        FROM attempt WHERE verb IN {FAILED} AND error IS NOT NULL GROUP BY ALL""",
    "attributes": f"""
        WITH drawn AS (
            SELECT DISTINCT date_trunc('day', "at") AS day, queue_id, type, id,
                CASE WHEN verb IN {FAILED} THEN fingerprint END AS fingerprint
            FROM attempt WHERE hash(id) % 100 < 20),
        said AS (
            SELECT drawn.*, unnest(json_keys(decode(body)::JSON)) AS name,
                decode(body)::JSON AS body
            FROM drawn JOIN message USING (id))
        SELECT day, queue_id, type, fingerprint, name, json_extract_string(body, name) AS value,
            count(*)
        FROM said WHERE length(value) <= 64 GROUP BY ALL""",
}  # fmt: skip


def run(lake: Path, folder: Path) -> dict[str, float]:
    """Seconds of each step, on two threads as Spark has."""
    folder.mkdir(exist_ok=True)
    took = {}
    with duckdb.connect() as connection:
        connection.execute("SET threads = 2; SET TimeZone = 'UTC'")
        for table in ("message", "history"):
            files = f"{lake}/{table}/*/*.parquet"
            connection.execute(f"CREATE VIEW {table} AS SELECT * FROM read_parquet('{files}')")
        for name, query in STEPS.items():
            begin = perf_counter()
            path = folder / f"{name}.parquet"
            connection.execute(f"COPY ({query}) TO '{path}' (COMPRESSION zstd)")
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
            took[name] = perf_counter() - begin
    return took
