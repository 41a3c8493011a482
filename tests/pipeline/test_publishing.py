"""Rows are published once for ever, in order, whoever publishes them how often, on every store."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest

from penstock.broker.local import Broker
from penstock.errors import IdempotencyConflict, InvalidInput, QueueFull
from penstock.model.message import Dedup, Draft
from penstock.model.store_types import Completion, Retention
from penstock.pipeline.spark.sink_options import SinkOptions, parse_rate
from penstock.pipeline.spark.sink_publish import BATCH_SIZE, PublishRate, SinkResult, publish_all
from tests.pipeline.scenes import fed, on, publish

COUNT = 2 * BATCH_SIZE + 7


def drafts(count: int = COUNT, name: str = "n", body: bytes = b"%d") -> list[Draft]:
    return [
        Draft(
            queue="mail",
            body=body % n if b"%" in body else body,
            dedup=Dedup(f"{name}:{n}", None),
            ordering_key=f"k{n % 3}" if n % 2 else None,
        )
        for n in range(count)
    ]


def bodies(url: str) -> list[int]:
    messages, _ = fed(url)
    return [int(each.body) for each in sorted(messages, key=lambda each: each.id)]


def end_all(url: str) -> None:
    """Every message completed, and then taken by retention."""

    async def work(broker: Broker) -> None:
        while taken := (await broker.claim("mail", consumer="c", limit=1_000)).messages:
            await broker.complete_many([Completion(each.id, each.fence) for each in taken])
        later = await broker.store.now() + 1
        (queue,) = [each for each in await broker.store.queues() if each.name == "mail"]
        while (await broker.store.prune(Retention((queue.id,), later, 0))).more:
            pass
        await broker.store.sweep_keys(10_000)

    on(url, work)


def test_a_row_is_published_once_even_after_its_message_ended_and_left(each_url: str) -> None:
    publish(each_url, 0)
    target = SinkOptions(each_url, "n")
    assert publish_all(target, [drafts()]) == SinkResult(COUNT, 0)
    assert bodies(each_url) == list(range(COUNT))
    end_all(each_url)
    assert publish_all(target, [drafts()]) == SinkResult(0, COUNT)
    assert bodies(each_url) == []
    assert publish_all(target, [drafts(COUNT + 2)]) == SinkResult(2, COUNT)


def test_two_at_once_publish_each_row_once_in_order(each_url: str) -> None:
    publish(each_url, 0)
    target = SinkOptions(each_url, "n")
    with ThreadPoolExecutor(2) as both:
        sent = list(both.map(lambda _: publish_all(target, [drafts()]), range(2)))
    assert sum(sent, SinkResult()) == SinkResult(COUNT, COUNT)
    assert bodies(each_url) == list(range(COUNT))


def test_what_broke_off_goes_on_where_it_stopped(url: str) -> None:
    def breaking() -> Iterator[Draft]:
        yield from drafts(BATCH_SIZE + 50)
        raise OSError("gone")

    target = SinkOptions(url, "n")
    before = len(fed(url)[0])
    with pytest.raises(OSError, match="gone"):
        publish_all(target, [breaking()])
    assert len(fed(url)[0]) == before + BATCH_SIZE
    assert publish_all(target, [drafts()]) == SinkResult(COUNT - BATCH_SIZE, BATCH_SIZE)


def test_a_key_is_another_under_another_name_and_beside_the_keys_of_others(url: str) -> None:
    async def plain(broker: Broker) -> None:
        for window in (None, 60.0):
            await broker.publish(Draft(queue="mail", dedup=Dedup("n:0", window)))

    on(url, plain)
    assert publish_all(SinkOptions(url, "n"), [drafts(1)]) == SinkResult(1, 0)
    assert publish_all(SinkOptions(url, "m"), [drafts(1, "m")]) == SinkResult(1, 0)


def test_another_body_under_a_key_is_refused_or_ignored(url: str) -> None:
    publish_all(SinkOptions(url, "n"), [drafts(3)])
    with pytest.raises(IdempotencyConflict, match=r"dedup key 'n:0'"):
        publish_all(SinkOptions(url, "n"), [drafts(4, body=b"other")])
    late = SinkOptions(url, "i", conflict="ignore")
    assert publish_all(late, [drafts(3, "i")]) == SinkResult(3, 0)
    assert publish_all(late, [drafts(4, "i", b"other")]) == SinkResult(1, 3)


def test_a_full_queue_takes_a_step_whole_or_not_at_all(url: str) -> None:
    async def narrow(broker: Broker) -> None:
        await broker.admin.set_queue("mail", max_depth=BATCH_SIZE + 50)

    on(url, narrow)
    before = len(fed(url)[0])
    with pytest.raises(QueueFull, match="queue 'mail' is full"):
        publish_all(SinkOptions(url, "n"), [drafts()])
    assert len(fed(url)[0]) == before + BATCH_SIZE


def test_looking_publishes_nothing_and_finds_what_is_wrong(url: str) -> None:
    before = len(fed(url)[0])
    looking = SinkOptions(url, "n", publish=False)
    assert publish_all(looking, [drafts()]) == SinkResult()
    with pytest.raises(InvalidInput, match="priority"):
        publish_all(looking, [[Draft(queue="mail", priority=10**9, dedup=Dedup("n:1", None))]])
    assert len(fed(url)[0]) == before


def test_a_rate_holds_back(url: str) -> None:
    begin = monotonic()
    assert publish_all(SinkOptions(url, "n", rate=100), [drafts(41)]) == SinkResult(41, 0)
    assert 0.4 <= monotonic() - begin < 30


@pytest.mark.parametrize(
    ("rate", "step"), [(None, BATCH_SIZE), (5.0, 1), (100.0, 10), (1e6, BATCH_SIZE)]
)
def test_a_slow_pace_takes_small_steps(rate: float | None, step: int) -> None:
    assert PublishRate(rate).step == step


@pytest.mark.parametrize("text", ["", "0", "-1", "fast", "5/m", "inf", "nan"])
def test_a_rate_that_is_none_is_named(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"must be a positive number such as 50/s"):
        parse_rate(text)
