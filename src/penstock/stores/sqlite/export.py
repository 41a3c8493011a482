"""The readers of history: feed for export, recent for live views, census for the balance."""

from penstock.errors import InvalidState
from penstock.message import HistoryRow
from penstock.stores.sqlite.rows import history_of, message_of
from penstock.stores.sqlite.transaction import Transaction
from penstock.ticket import Cursor, Exported, Feed, Tally


def feed(tx: Transaction, cursor: Cursor, limit: int) -> Feed:
    """One writer at a time, so ids and positions are in commit order: all are final."""
    epoch: int = tx.one("number", ("epoch",))[0]
    if cursor.epoch > epoch:
        raise InvalidState(
            f"the cursor is of epoch {cursor.epoch}, the store of {epoch}: is it another store?"
        )
    messages = [message_of(row) for row in tx.all("feed_messages", (cursor.message, limit))]
    history = [history_of(row) for row in tx.all("feed_history", (cursor.history, limit))]
    return Feed(
        messages,
        history,
        Cursor(
            epoch,
            messages[-1].id if messages else cursor.message,
            history[-1].position if history else cursor.history,
        ),
    )


def recent(tx: Transaction, after: int, limit: int) -> list[HistoryRow]:
    return [history_of(row) for row in tx.all("feed_history", (after, limit))]


def census(tx: Transaction) -> list[Tally]:
    return [Tally(*row) for row in tx.all("census")]


def depths(tx: Transaction, ended: int) -> dict[tuple[int, str], int]:
    return {(queue_id, place): count for queue_id, place, count in tx.all("depths", (ended,))}


def save_cursor(tx: Transaction, name: str, cursor: Cursor) -> None:
    tx.run("cursor_save", (name, cursor.epoch, cursor.message, cursor.history, tx.now))


def cursors(tx: Transaction) -> dict[str, Exported]:
    return {
        name: Exported(Cursor(epoch, message, history), advanced_at)
        for name, epoch, message, history, advanced_at in tx.all("cursors")
    }
