"""Spark pipeline example: extract history to a lake, query it, and publish rows as messages.

Run it cell by cell in a notebook, or as a script:

    python examples/pipeline.py sqlite:///penstock.db lake
    spark-submit --master spark://spark.example:7077 examples/pipeline.py postgresql://... lake
"""

import sys

# %% The store and the lake. Every machine of a cluster must be able to reach them.
from penstock.pipeline import ReplayRequest, extract, join_tables, read_lake, replay, start_session

url, lake = sys.argv[1:3] if len(sys.argv) > 2 else ("sqlite:///penstock.db", "lake")

# %% Uses the Spark session of a notebook, or starts one.
with start_session() as spark:
    print(extract(spark, url, lake))

    # %% Count messages by queue, type and state.
    messages, history = read_lake(spark, lake, "message"), read_lake(spark, lake, "history")
    join_tables(messages, history).groupBy("queue", "type", "state").count().show()

    # %% Dry run of replaying failed messages.
    print(replay(spark, url, lake, ReplayRequest("state = 'failed'"), dry_run=True))

    # %% Publish rows as messages. Under one name each key is published once, also if run again.
    rows = messages.filter("priority > 5").selectExpr(
        "cast(id as string) as key", "queue", "body", "id as parent_id"
    )
    if "--publish" in sys.argv:
        rows.write.format("penstock").options(url=url, name="urgent").mode("append").save()
