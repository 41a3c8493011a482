"""Letters about human steps, in this process and in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from penstock.agents.human_notifier import HumanNotifier
from penstock.broker.local import Broker
from penstock.broker.waiting.human_webhooks import DONE_NOTICE, OPEN_NOTICE
from penstock.errors import Conflict, InvalidInput, NotFound
from penstock.retry_policies import FIRST_WEBHOOK_DELAY_S
from penstock.rules.human import Person
from penstock.rules.human_links import HumanLinks
from penstock.rules.human_spec import parse_spec
from penstock.testing.simulation import Simulation
from penstock.webhooks.egress import EgressPolicy
from penstock.webhooks.sender import WebhookSender
from tests.http.receiver import Receiver, receiving

pytestmark = pytest.mark.anyio
PATH = "/letters"
BOSS = Person("boss", acts_for_all=True, sees_all=True)
SPEC = {
    "title": "Refund?", "assign": {"users": ["ann"]}, "timeout": 100, "reminders": [50],
    "on_timeout": {"escalate": ["finance"]},
}  # fmt: skip


class Post:
    """A simulation with a webhook, its receiver, and the agents of two servers."""

    def __init__(self, simulation: Simulation, sender: WebhookSender, receiver: Receiver) -> None:
        self.simulation = simulation
        self.inbox = simulation.broker.inbox
        self.receiver = receiver
        self.links = HumanLinks(b"s" * 32)
        store = simulation.store
        self.agents = [
            HumanNotifier(store, Broker(store).directory, sender, self.links, "http://here")
            for _ in range(2)
        ]

    async def add(self, *, links: bool = False) -> None:
        await self.inbox.webhooks.add("chat", self.receiver.url + PATH, links=links)

    async def ask(self, **fields: Any) -> int:
        return (await self.inbox.request(parse_spec({**SPEC, **fields}), requester="eve")).id

    async def turn(self, seconds: float = 0.0) -> list[str]:
        """Ticks both agents after so many seconds. Returns the texts sent until now."""
        if seconds:
            await self.simulation.advance(seconds)
        await asyncio.gather(*(agent.tick() for agent in self.agents))
        return [post.json["text"] for post in self.receiver.of(PATH)]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
async def post(receiver: Receiver) -> AsyncIterator[Post]:
    async with (
        Simulation.open() as simulation,
        WebhookSender(EgressPolicy(private=True, ports=None)) as sender,
    ):
        yield Post(simulation, sender, receiver)


async def test_each_letter_about_a_step_is_sent_once(post: Post) -> None:
    await post.add()
    id = await post.ask()
    letters = ["A decision is needed: Refund?"]
    assert await post.turn() == letters
    assert await post.turn(20) == letters
    letters.append("Reminder: a decision is needed: Refund?")
    assert await post.turn(35) == letters
    letters.append("Escalated to finance: Refund?")
    assert await post.turn(50) == letters
    letters.append("Reminder: a decision is needed: Refund?")
    assert await post.turn(50) == letters
    await post.inbox.decide(id, BOSS, "approve")
    letters.append("Decided as approve by boss: Refund?")
    assert await post.turn() == letters
    assert await post.turn(700) == letters
    last = post.receiver.of(PATH)[-1].json
    assert (last["type"], last["data"]["choice"]) == ("human.decided", "approve")
    assert (last["data"]["requester"], last["data"]["links"]) == ("eve", {})


async def test_a_step_that_ended_between_two_looks_is_sent(post: Post) -> None:
    await post.ask()
    # A step that opened before the webhook is not sent.
    await post.simulation.advance(1)
    await post.add()
    assert await post.turn(1) == []
    id = await post.ask(title="Now?")
    await post.inbox.decide(id, BOSS, "reject")
    assert await post.turn(3_600) == ["Decided as reject by boss: Now?"]


async def test_a_refused_letter_is_sent_again_with_the_same_id(post: Post) -> None:
    await post.add()
    await post.ask()
    post.receiver.answers[PATH] = [500, 200]
    assert len(await post.turn()) == 1
    (status,) = await post.inbox.webhooks.list()
    assert status.state.last_error == "status 500"
    assert len(await post.turn(FIRST_WEBHOOK_DELAY_S - 1)) == 1
    assert len(await post.turn(2)) == 2
    first, second = post.receiver.of(PATH)
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    (status,) = await post.inbox.webhooks.list()
    assert status.state.last_error is None


async def test_links_are_made_for_each_person_and_stored_nowhere(post: Post) -> None:
    await post.add(links=True)
    await post.ask()
    await post.turn()
    (letter,) = post.receiver.of(PATH)
    url = letter.json["data"]["links"]["ann"]
    token = urlsplit(url).path.rpartition("/")[2]
    assert post.links.read(token).person == "ann"
    post.links.verify(token, parse_spec(SPEC))
    store = post.simulation.store
    for kind in (OPEN_NOTICE, DONE_NOTICE, "live_event", "human_webhook_state"):
        assert [each for each in await store.documents(kind) if token.encode() in each.body] == []


async def test_a_webhook_without_links_gets_none(post: Post) -> None:
    await post.add()
    await post.ask()
    await post.turn()
    assert post.receiver.of(PATH)[0].json["data"]["links"] == {}


async def test_a_deleted_webhook_gets_no_letters(post: Post) -> None:
    await post.add()
    await post.ask()
    await post.turn()
    with pytest.raises(Conflict):
        await post.add()
    await post.inbox.webhooks.delete("chat")
    assert await post.simulation.store.documents(OPEN_NOTICE) == []
    assert len(await post.turn(55)) == 1
    with pytest.raises(NotFound):
        await post.inbox.webhooks.delete("chat")
    with pytest.raises(InvalidInput):
        await post.inbox.webhooks.add("no good", "https://example.org")
