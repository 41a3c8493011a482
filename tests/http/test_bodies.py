"""Bodies as they come: whole, in pieces, too large, too slow, or not to the end."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.errors import BodyTooLarge, RequestTimeout
from penstock.http.context import BodyReader, ClientDisconnected, Receive, read_body
from penstock.http.state import ServerLimits
from tests.unit.virtual_loop import run_virtually

pytestmark = pytest.mark.anyio
LIMITS = ServerLimits(body=10, body_timeout=0.01)
GONE = {"type": "http.disconnect"}


def piece(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def receiving(*messages: dict[str, Any]) -> Receive:
    """Those, and then nothing ever."""
    left = list(messages)

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return receive


@pytest.mark.parametrize(
    "messages",
    [
        [piece(b"0123456789")],
        [piece(b"01234", True), piece(b"56789")],
        [*[piece(b"", True)] * 3, piece(b"0123456789")],
    ],
    ids=["whole", "in pieces", "late"],
)
async def test_a_body_is_read_whole(messages: Sequence[dict[str, Any]]) -> None:
    assert await read_body(receiving(*messages), LIMITS) == b"0123456789"


@pytest.mark.parametrize(
    "messages", [[piece(b"x" * 11)], [piece(b"x" * 6, True)] * 2], ids=["whole", "in pieces"]
)
async def test_a_body_past_the_limit_is_not_read_to_its_end(
    messages: Sequence[dict[str, Any]],
) -> None:
    with pytest.raises(BodyTooLarge):
        await read_body(receiving(*messages), LIMITS)


async def test_a_body_that_does_not_come_is_not_waited_for_for_ever() -> None:
    with pytest.raises(RequestTimeout, match="request body stalled"):
        await read_body(receiving(piece(b"x", True)), LIMITS)


async def test_the_first_piece_is_not_waited_for_for_ever() -> None:
    with pytest.raises(RequestTimeout, match="request body stalled"):
        await read_body(receiving(), LIMITS)


def trickling(size: int, pause: float, count: int) -> Receive:
    """So many pieces of that size, with a pause before each."""
    left = [piece(b"x" * size, True) for _ in range(count - 1)] + [piece(b"x" * size)]

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(pause)
        return left.pop(0)

    return receive


SLOW = ServerLimits(body=1_000_000, body_timeout=30.0)


def test_a_byte_now_and_then_is_too_slow() -> None:
    with pytest.raises(RequestTimeout):
        run_virtually(read_body(trickling(1, 5.0, 100), SLOW))


def test_a_long_body_may_take_long_as_long_as_it_comes() -> None:
    body = run_virtually(read_body(trickling(5_000, 5.0, 100), SLOW))
    assert len(body) == 500_000


def test_the_time_a_server_takes_between_two_pieces_is_not_the_client_s() -> None:
    async def read() -> int:
        reader = BodyReader(trickling(1, 5.0, 5), 30.0)
        size, more = 0, True
        while more:
            found, more = await reader.next_piece()
            size += len(found)
            await asyncio.sleep(60)
        return size

    assert run_virtually(read()) == 5


@pytest.mark.parametrize("messages", [[GONE], [piece(b"x", True), GONE]], ids=["at once", "later"])
async def test_whoever_goes_away_in_the_middle_is_gone(messages: Sequence[dict[str, Any]]) -> None:
    with pytest.raises(ClientDisconnected):
        await read_body(receiving(*messages), LIMITS)
