"""Ordering keys: one message at a time per key. Unique keys: freed when a message ends."""

from penstock.message import NEVER, Flag
from penstock.stores.sqlite.transaction import Ticket, Transaction


def get_in_line(tx: Transaction, ticket: Ticket, key: str, position: int) -> None:
    """At its position in the key's line; ready at once if the key is free."""
    tx.put_scheduled(ticket, NEVER, key, position)
    advance(tx, ticket.queue_id, key)


def advance(tx: Transaction, queue_id: int, key: str) -> None:
    """The first in line becomes ready, unless another one's turn is not over."""
    if tx.one("head", (queue_id, key)) is not None:
        return
    row = tx.one("first_in_line", (queue_id, key))
    if row is not None:
        ticket = Ticket(*row)
        tx.run("take_head", (queue_id, key, ticket.id))
        tx.one("take_scheduled", (ticket.id,))
        tx.put_ready(ticket)


def end_of_line(tx: Transaction) -> int:
    """A position behind every message published so far."""
    position: int = tx.one("end_of_line")[0]
    return position


def free(tx: Transaction, id: int, flags: int) -> None:
    """The message is finished or dead: its keys are for others."""
    if flags & Flag.KEYED:
        head = tx.one("free_head", (id,))
        if head is not None:
            advance(tx, *head)
    if flags & Flag.UNIQUE:
        tx.run("unique_free", (id,))
