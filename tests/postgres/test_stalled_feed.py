"""A transaction that holds back the history is an anomaly that names it."""

import pytest

from penstock.agents import anomaly_detector
from penstock.agents.anomaly_detector import AnomalyDetector
from penstock.agents.historian import Historian
from penstock.broker.local import Broker
from penstock.model.message import Draft
from penstock.model.store_types import Completion
from penstock.stores.postgres.store import PostgresStore
from tests.postgres.scenes import claim, connect

pytestmark = pytest.mark.anyio


async def complete_one(broker: Broker, store: PostgresStore) -> None:
    await broker.publish(Draft())
    (leased,) = await claim(store)
    await store.complete([Completion(leased.id, leased.fence)])


async def test_a_stalled_feed_is_an_anomaly_that_names_the_transaction(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anomaly_detector, "FEED_STALLED_S", 0)
    broker = Broker(store)
    await complete_one(broker, store)
    await Historian(store, broker.directory, "a").tick()
    detector = AnomalyDetector(store, broker.directory, "a")
    await detector.tick()
    assert (await broker.anomalies.list()).by_kind == {}
    async with connect(url, application_name="report") as writer:
        transaction = writer.transaction()
        await transaction.start()
        await writer.execute("SELECT txid_current()")
        await complete_one(broker, store)
        await detector.tick()
        pid = writer.get_server_pid()
        await transaction.rollback()
    (found,) = (await broker.anomalies.list()).anomalies
    assert (found.kind, found.severity, found.queue) == ("feed_stalled", "warning", "")
    assert found.note is not None
    assert found.note.endswith(f"(pid {pid}, application 'report')")
