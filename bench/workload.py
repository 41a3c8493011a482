"""The workload of both sides: bodies, batches and warm-up."""

BODY = 200
BULK = 1_000
# Untimed messages at the start of every timed process.
WARM_UP = 200


def make_bodies(count: int) -> list[str]:
    return [make_body(number) for number in range(count)]


def make_body(number: int, sent_at: float = 0.0) -> str:
    """Returns JSON of exactly `BODY` bytes."""
    head = f'{{"number":{number},"sent_at":{sent_at!r},"padding":"'
    return head + "x" * (BODY - len(head) - 2) + '"}'
