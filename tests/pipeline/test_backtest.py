"""A rule is tried on the messages of the lake."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.broker.local import Broker
from penstock.model.message import Draft
from penstock.pipeline import extract
from penstock.pipeline.backtest import BacktestResult, backtest
from penstock.rules.rule_checks import parse_rule
from tests.pipeline.scenes import on


async def fill(broker: Broker) -> None:
    bodies = (b'{"n": 1}', b'{"n": 5}', b"{}", b'{"n": "x"}')
    await broker.publish_many([Draft(body=body, labels={"tier": "gold"}) for body in bodies])
    claimed = await broker.claim("default", consumer="me")
    await broker.complete(claimed.messages[0])


def test_a_rule_is_counted_on_the_messages_of_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    url, lake = f"sqlite:///{tmp_path / 'store.db'}", str(tmp_path / "lake")
    on(url, fill)
    extract(spark, url, lake)
    since = datetime.now(UTC) - timedelta(days=1)
    when = "message.labels.tier == 'gold' && message.body.n > 2"
    rule = parse_rule({"name": "r", "when": when, "do": [{"set": {"priority": 1}}]})
    assert backtest(spark, lake, rule, since) == BacktestResult(4, 1, 1, 1, {"default": 1})
    former = parse_rule({"name": "r", "when": "true", "do": [{"set": {"priority": 1}}]})
    compared = backtest(spark, lake, rule, since, former)
    assert (compared.matched, compared.gained, compared.lost) == (1, 0, 3)
    compared = backtest(spark, lake, former, since, rule)
    assert (compared.matched, compared.gained, compared.lost) == (4, 3, 0)
    ended = {"name": "e", "on": "completed", "when": "message.attempts == 1", "do": [{"copy": "x"}]}
    found = backtest(spark, lake, parse_rule(ended), since)
    assert (found.tried, found.matched) == (1, 1)
    later = datetime.now(UTC) + timedelta(days=1)
    assert backtest(spark, lake, rule, later).tried == 0
