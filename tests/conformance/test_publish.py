"""What a publish makes of a draft."""

import anyio
import pytest
from msgspec.structs import replace

from penstock.errors import Forbidden, NotFound
from penstock.model.message import Draft, Meta, State
from tests.conformance.stage import HOUR, Stage, micros

pytestmark = pytest.mark.anyio


async def test_hello_world_creates_nothing(stage: Stage) -> None:
    id = await stage.publish(b"hello")
    assert await stage.drain() == [id]


async def test_a_published_message_is_ready(stage: Stage) -> None:
    id = await stage.publish()
    assert await stage.counters(id) == (State.READY, 0, 0)
    assert await stage.places() == {"ready": 1}
    assert await stage.life(id) == []


async def test_a_message_keeps_everything_it_was_published_with(stage: Stage) -> None:
    run_at, expires_at = [await stage.store.now() + micros(n * HOUR) for n in (1, 2)]
    draft = Draft(
        body=b'{"a": 1}',
        type="mail.send",
        priority=7,
        run_at=run_at,
        expires_at=expires_at,
        name="first",
        headers={"x": "ü"},
        labels={"tier": "gold"},
        content_type="text/plain",
        deadline=expires_at + 1,
        lease=12.5,
        timeout=3.5,
        max_attempts=4,
        max_deliveries=9,
        ordering_key="k",
        correlation_id="c",
        causation_id="z",
        parent_id=77,
        traceparent="00-abc",
        hops=2,
    )
    published = await stage.broker.publish(draft)
    record = await stage.record(published.id)
    assert (record.message.type, record.message.priority) == ("mail.send", 7)
    assert record.message.body == b'{"a": 1}'
    assert record.message.queue_id == await stage.queue_id()
    assert (record.run_at, record.expires_at) == (run_at, expires_at)
    assert record.message.meta == Meta(
        name="first",
        headers={"x": "ü"},
        labels={"tier": "gold"},
        content_type="text/plain",
        deadline=expires_at + 1,
        lease=12.5,
        timeout=3.5,
        max_attempts=4,
        max_deliveries=9,
        ordering_key="k",
        correlation_id="c",
        causation_id="z",
        parent_id=77,
        traceparent="00-abc",
        hops=2,
    )


async def test_it_is_created_at_the_moment_of_the_store(stage: Stage) -> None:
    before = await stage.store.now()
    id = await stage.publish()
    assert before <= (await stage.record(id)).message.created_at <= await stage.store.now()


@pytest.mark.parametrize("body", [b"", b"\x00\xff\xfe", bytes(range(256)) * 4096])
async def test_a_body_comes_out_as_it_went_in(stage: Stage, body: bytes) -> None:
    id = await stage.publish(body)
    assert (await stage.record(id)).message.body == body
    assert (await stage.take()).body == body


@pytest.mark.parametrize("text", ["ü", "日本", "🦆", 'a"b\\c', "'; DROP TABLE message", " "])
async def test_any_text_comes_out_as_it_went_in(stage: Stage, text: str) -> None:
    draft = Draft(type=text, name=text, ordering_key=text, correlation_id=text)
    pairs = {text: text}
    id = (await stage.broker.publish(replace(draft, labels=pairs, headers=pairs))).id
    message = (await stage.record(id)).message
    assert message.type == text
    assert message.meta.name == message.meta.ordering_key == message.meta.correlation_id == text
    assert message.meta.labels == message.meta.headers == {text: text}
    assert (await stage.admin.get(f"default/{text}")).message.id == id


async def test_ids_are_positive_and_grow_in_publish_order(stage: Stage) -> None:
    ids = [await stage.publish(), *await stage.publish_each(5), await stage.publish(delay=5)]
    assert ids[0] > 0
    assert ids == sorted(set(ids))


async def test_an_id_belongs_to_one_message_of_the_store(stage: Stage) -> None:
    await stage.queue("work")
    ids = await stage.publish_each(3) + await stage.publish_each(3, queue="work")
    assert len(set(ids)) == 6


async def test_an_unknown_queue_is_not_found(stage: Stage) -> None:
    before = await stage.all()
    with pytest.raises(NotFound, match="'emials'"):
        await stage.publish(queue="emials")
    assert await stage.all() == before


async def test_nobody_publishes_to_a_system_queue(stage: Stage) -> None:
    before = await stage.all()
    with pytest.raises(Forbidden, match="'_dead_letter'"):
        await stage.publish(queue="_dead_letter")
    assert await stage.all() == before


async def test_a_publish_wakes_a_waiting_claim(stage: Stage) -> None:
    other = await stage.another()
    taken: list[int] = []

    async def wait() -> None:
        taken.extend(leased.id for leased in await other.claim(wait=30))

    with anyio.fail_after(25):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.lowlevel.checkpoint()
            id = await stage.publish()
    assert taken == [id]


async def test_a_waiting_claim_gives_up_with_nothing(stage: Stage) -> None:
    assert await stage.claim(wait=0.05) == []
