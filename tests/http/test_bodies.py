"""Bodies as they come: whole, in pieces, too large, too slow, or not to the end."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.errors import BodyTooLarge, Malformed
from penstock.http.call import Gone, Receive, read_body
from penstock.http.service import Limits

pytestmark = pytest.mark.anyio
LIMITS = Limits(body=10, patience=0.01)
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
    with pytest.raises(Malformed, match="did not come"):
        await read_body(receiving(piece(b"x", True)), LIMITS)


@pytest.mark.parametrize("messages", [[GONE], [piece(b"x", True), GONE]], ids=["at once", "later"])
async def test_whoever_goes_away_in_the_middle_is_gone(messages: Sequence[dict[str, Any]]) -> None:
    with pytest.raises(Gone):
        await read_body(receiving(*messages), LIMITS)
