"""The client repeats calls that are safe to repeat, and no others."""

import pytest

from penstock.client import Client
from penstock.errors import OutcomeUnknown, StoreUnreachable
from penstock.model.message import Dedup, Draft, State
from penstock.model.store_types import AnswerKind
from penstock.retry_policies import RetryPolicy
from tests.http.flaky import FlakyProxy, Treatment
from tests.http.served import Served

pytestmark = pytest.mark.anyio


def lose_first(path: str, before: int) -> Treatment:
    return "forward" if before else "lose"


def refuse_twice(path: str, before: int) -> Treatment:
    return "forward" if before >= 2 else "refuse"


async def test_a_settle_whose_answer_was_lost_is_repeated(server: Served) -> None:
    queue = server.queue()
    id = server.publish(queue)
    with FlakyProxy(server.port, lose_first) as proxy:
        async with Client(f"http://127.0.0.1:{server.port}") as direct:
            (message,) = (await direct.claim(queue, consumer="c", lease=600)).messages
        async with Client(proxy.url, ledger=direct.ledger) as client:
            assert (await client.extend(message, 600)).kind is AnswerKind.DONE
            assert (await client.complete(message, b"1")).kind is AnswerKind.ALREADY
    assert proxy.asked == ["/v1/extend/batch"] * 2 + ["/v1/complete/batch"] * 2
    assert server.state(id) == "completed"


async def test_a_settle_waits_for_a_busy_server(server: Served) -> None:
    queue = server.queue()
    server.publish(queue)
    with FlakyProxy(server.port, refuse_twice) as proxy:
        async with Client(f"http://127.0.0.1:{server.port}") as direct:
            (message,) = (await direct.claim(queue, consumer="c", lease=600)).messages
        async with Client(proxy.url, ledger=direct.ledger) as client:
            assert (await client.complete(message)).state is State.COMPLETED


async def test_repeats_end(server: Served) -> None:
    queue = server.queue()
    server.publish(queue)
    with FlakyProxy(server.port, lambda path, before: "lose") as proxy:
        async with Client(f"http://127.0.0.1:{server.port}") as direct:
            (message,) = (await direct.claim(queue, consumer="c", lease=600)).messages
        few = RetryPolicy(attempts=3, delay=0.0, deadline=600.0)
        async with Client(proxy.url, ledger=direct.ledger, settle_retry=few) as client:
            with pytest.raises(StoreUnreachable):
                await client.complete(message)
    assert len(proxy.asked) == 3


async def test_a_publish_is_repeated_if_it_has_a_key(server: Served) -> None:
    queue = server.queue()
    with FlakyProxy(server.port, lose_first) as proxy:
        async with Client(proxy.url) as client:
            with pytest.raises(OutcomeUnknown):
                await client.publish(Draft(queue=queue, body=b"1"))
            assert proxy.asked == ["/v1/publish"]
            proxy.asked.clear()
            published = await client.publish(Draft(queue=queue, body=b"2", dedup=Dedup("k")))
            assert (published.duplicate, len(proxy.asked)) == (True, 2)
    assert len(server.get("/v1/messages", queue=queue).json["messages"]) == 2


async def test_a_read_is_repeated_and_a_claim_is_not(server: Served) -> None:
    queue = server.queue()
    with FlakyProxy(server.port, lose_first) as proxy:
        async with Client(proxy.url) as client:
            assert (await client.admin.queue(queue)).name == queue
            assert len(proxy.asked) == 2
            with pytest.raises(StoreUnreachable):
                await client.claim(queue, consumer="c")
            assert len(proxy.asked) == 3
