"""What both sides are given: the same bodies, the same batches, the same warm-up."""

BODY = 200
BULK = 1_000
# Untimed, at the begin of every timed process.
WARM_UP = 200


def bodies(count: int) -> list[str]:
    return [body(number) for number in range(count)]


def body(number: int, sent_at: float = 0.0) -> str:
    """JSON of exactly `BODY` bytes."""
    head = f'{{"number":{number},"sent_at":{sent_at!r},"padding":"'
    return head + "x" * (BODY - len(head) - 2) + '"}'
