"""A store in Spark: history in a lake, questions to it, and rows that become messages.

For a notebook, cell by cell, or as a script:

    python examples/pipeline.py sqlite:///penstock.db lake
    spark-submit --master spark://spark.example:7077 examples/pipeline.py postgresql://... lake
"""

import sys

# %% Where the store and the lake are; every machine of a cluster must reach them.
from penstock.pipeline import ReplayRequest, extract, join_tables, read_lake, replay, start_session

url, lake = sys.argv[1:3] if len(sys.argv) > 2 else ("sqlite:///penstock.db", "lake")

# %% A notebook has a Spark already, and then it is used; otherwise one is started here.
with start_session() as spark:
    print(extract(spark, url, lake))

    # %% What became of the messages, by queue and type.
    messages, history = read_lake(spark, lake, "message"), read_lake(spark, lake, "history")
    join_tables(messages, history).groupBy("queue", "type", "state").count().show()

    # %% What would go back into its queue if those that failed were replayed; none does.
    print(replay(spark, url, lake, ReplayRequest("state = 'failed'"), dry_run=True))

    # %% Rows as messages: whoever runs this twice under one name publishes each key once.
    rows = messages.filter("priority > 5").selectExpr(
        "cast(id as string) as key", "queue", "body", "id as parent_id"
    )
    if "--publish" in sys.argv:
        rows.write.format("penstock").options(url=url, name="urgent").mode("append").save()
