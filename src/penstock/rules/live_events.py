"""Rules: how live events are stored, so that every server can send them."""

from penstock.model.documents import Document
from penstock.model.message import MICROS_PER_SECOND, Moment

LIVE_EVENT = "live_event"
KEPT_S = 60


def make_document(at: Moment, mark: str, body: bytes) -> Document:
    """Makes the document of an event. Its name has the time, and is unique by `mark`."""
    return Document(
        kind=LIVE_EVENT,
        name=f"{format_moment(at)}-{mark}",
        body=body,
        expires_at=at + KEPT_S * MICROS_PER_SECOND,
    )


def make_signal_document(at: Moment, signal_id: int, body: bytes) -> Document:
    return make_document(at, f"signal-{signal_id}", body)


def format_moment(at: Moment) -> str:
    """Returns the beginning of the names of events at a moment."""
    return f"{at:020d}"


def read_moment(name: str) -> Moment:
    return int(name.partition("-")[0])
