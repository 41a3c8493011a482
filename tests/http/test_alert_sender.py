"""When alerts are sent, in this process and by a clock that the test turns."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from penstock import stores
from penstock.agents.alert_sender import AlertSender
from penstock.broker.anomalies import make_case, record_anomalies
from penstock.broker.local import Broker
from penstock.model.alerts import AlertState
from penstock.retry_policies import MAX_WEBHOOK_DELAY_S
from penstock.rules.anomalies import RESOLVE_AFTER_S
from penstock.store import Store
from penstock.testing.simulation import ManualClock
from penstock.webhooks.egress import EgressPolicy
from penstock.webhooks.sender import WebhookSender
from tests.http.receiver import Receiver, receiving

pytestmark = pytest.mark.anyio
PATH = "/alerts"


class Watch:
    """An alert, its sender and its receiver."""

    def __init__(self, store: Store, clock: ManualClock, receiver: Receiver) -> None:
        self.store = store
        self.clock = clock
        self.receiver = receiver
        self.broker = Broker(store)
        self.sender = WebhookSender(EgressPolicy(private=True, ports=None))
        self.agent = self.make_agent()

    def make_agent(self) -> AlertSender:
        return AlertSender(self.store, self.broker.directory, self.sender)

    async def add(self, **options: Any) -> None:
        await self.broker.alerts.add("ops", self.receiver.url + PATH, **options)

    async def notice(self, queue: str, kind: str = "no_consumer") -> None:
        """Records an anomaly of the queue, as a process that notices it does."""
        found = await self.broker.admin.queue(queue)
        case = make_case(kind, await self.store.now(), queue_id=found.id)
        await record_anomalies(self.store, self.broker.directory, [case])

    async def turn(self, seconds: float = 0.0) -> list[str]:
        """Ticks once after so many seconds. Returns the texts sent until now."""
        self.clock.advance(seconds)
        await self.agent.tick()
        return [post.json["text"].partition("\n")[0] for post in self.receiver.of(PATH)]

    async def state(self) -> AlertState:
        return (await self.broker.alerts.get("ops")).state


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
async def watch(receiver: Receiver) -> AsyncIterator[Watch]:
    clock = ManualClock()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(await stores.open("sqlite://", clock=clock))
        watch = Watch(store, clock, receiver)
        await stack.enter_async_context(watch.sender)
        for queue in ("mail", "orders"):
            await watch.broker.admin.create_queue(queue)
        yield watch


async def test_an_open_anomaly_is_sent_once_and_again_when_it_is_resolved(watch: Watch) -> None:
    await watch.add()
    await watch.notice("mail")
    first = ["[ops] 1 anomaly open"]
    assert await watch.turn() == first
    await watch.notice("mail")
    assert await watch.turn(5) == first
    assert await watch.turn(RESOLVE_AFTER_S + 1) == [*first, "[ops] 1 anomaly resolved"]
    assert await watch.turn(5) == [*first, "[ops] 1 anomaly resolved"]


async def test_anomalies_within_the_cool_down_are_sent_together_after_it(watch: Watch) -> None:
    await watch.add(cooldown=60.0)
    await watch.notice("mail")
    first = ["[ops] 1 anomaly open"]
    assert await watch.turn() == first
    await watch.notice("orders")
    await watch.notice("orders", "unknown_task")
    assert await watch.turn(59) == first
    assert await watch.turn(1) == [*first, "[ops] 2 anomalies open"]


async def test_an_anomaly_must_last_its_minimum_duration(watch: Watch) -> None:
    await watch.add(min_duration=30.0)
    await watch.notice("mail")
    assert await watch.turn(29) == []
    assert await watch.turn(1) == ["[ops] 1 anomaly open"]


async def test_a_minimum_duration_may_be_longer_than_an_hour(watch: Watch) -> None:
    await watch.add(min_duration=3 * 3600.0)
    for _ in range(35):
        await watch.notice("mail")
        assert await watch.turn(300) == []
    await watch.notice("mail")
    assert await watch.turn(300) == ["[ops] 1 anomaly open"]


async def test_an_anomaly_that_opens_again_must_last_its_minimum_duration_again(
    watch: Watch,
) -> None:
    await watch.add(min_duration=3600.0)
    for pause in [*[300] * 11, RESOLVE_AFTER_S + 1, *[300] * 11]:
        await watch.notice("mail")
        assert await watch.turn(pause) == []
    await watch.notice("mail")
    assert await watch.turn(300) == ["[ops] 1 anomaly open"]


async def test_a_muted_kind_is_not_sent(watch: Watch) -> None:
    await watch.add()
    await watch.broker.admin.set_queue("mail", anomalies={"mute": ["no_consumer"]})
    await watch.notice("mail")
    assert await watch.turn() == []
    await watch.notice("mail", "unknown_task")
    assert await watch.turn() == ["[ops] 1 anomaly open"]


async def test_kinds_severities_and_queues_select(watch: Watch) -> None:
    await watch.add(kinds=("no_consumer",), queues=("or*",))
    for queue in ("mail", "orders"):
        for kind in ("no_consumer", "unknown_task"):
            await watch.notice(queue, kind)
    await watch.turn()
    (post,) = watch.receiver.of(PATH)
    cases = [(each["queue"], each["kind"]) for each in post.json["data"]["anomalies"]]
    assert cases == [("orders", "no_consumer")]


async def test_a_receiver_that_is_down_for_days_gets_every_notice_when_it_is_back(
    watch: Watch,
) -> None:
    await watch.add(cooldown=0.0)
    watch.receiver.answers[PATH] = [503]
    await watch.notice("mail")
    await watch.turn()
    for _ in range(39):
        await watch.turn(MAX_WEBHOOK_DELAY_S)
    state = await watch.state()
    assert state.pending is not None
    assert (state.pending.attempts, state.sent, state.last_error) == (40, 0, "status 503")
    watch.receiver.answers[PATH] = [200]
    await watch.turn(MAX_WEBHOOK_DELAY_S)
    await watch.notice("orders")
    await watch.turn()
    texts = (await watch.turn())[40:]
    assert texts == [
        "[ops] 1 anomaly open", "[ops] 1 anomaly open", "[ops] 1 anomaly resolved",
    ]  # fmt: skip


async def test_another_server_sends_what_one_could_not(watch: Watch) -> None:
    await watch.add()
    watch.receiver.answers[PATH] = [503, 200]
    await watch.notice("mail")
    await watch.turn()
    watch.agent = watch.make_agent()
    await watch.turn(5)
    first, second = watch.receiver.of(PATH)
    assert (first.id, first.body) == (second.id, second.body)
    assert (await watch.state()).sent == 1
