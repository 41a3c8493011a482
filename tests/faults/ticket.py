"""One message of the model queue."""

from tests.checker import Publish, Row, Stored

FINAL = frozenset({"completed", "failed", "cancelled"})
PLACES = {
    "ready": ("ready",),
    "scheduled": ("scheduled",),
    "claimed": ("lease",),
    "dead": ("dead",),
}

# A call: the process and its number.
Token = tuple[str, int]


class Ticket:
    """One message, its place and its past."""

    def __init__(self, id: int, call: Publish) -> None:
        self.id = id
        self.call = call
        self.line = id
        self.state = "ready"
        self.due_at = call.due_at or 0
        self.attempts = self.deliveries = self.fence = self.lease_until = 0
        self.unbegun = self.cancel_requested = False
        self.intact = True
        self.created_at = 0
        self.publisher: Token | None = None
        self.holder: Token | None = None
        self.rows: list[Row] = []
        self.more_places: tuple[str, ...] = ()
        self.parent: int | None = None
        self.fired: tuple[str, int] | None = None

    @property
    def open(self) -> bool:
        return self.state not in FINAL and self.state != "dead"

    @property
    def places(self) -> tuple[str, ...]:
        return PLACES.get(self.state, ()) + self.more_places

    def stored(self) -> Stored:
        schedule, tick = self.fired or (None, None)
        return Stored(
            self.id,
            self.call.label,
            self.call.queue,
            self.state,
            self.attempts,
            self.deliveries,
            tuple(self.rows),
            self.places,
            self.intact,
            self.due_at or None,
            self.parent,
            schedule,
            tick,
        )
