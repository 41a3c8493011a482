"""Options of a worker."""

from msgspec import Struct

from penstock.model.fields import MAX_BATCH, MAX_LEASE_S, MIN_LEASE_S
from penstock.model.settings import check_range


class WorkerOptions(Struct, frozen=True):
    """Concurrency, fetching and timing of a worker.

    It prefetches about `horizon` seconds of work if runs are shorter than that: at most
    fetch_batch_size x overfetch_factor, and at most `prefetch` more than can run at once.
    """

    concurrency: int = 10
    fetch_batch_size: int = 500
    overfetch_factor: float = 1.5
    min_interval: float = 0.0
    max_interval: float = 1.0
    horizon: float = 0.1
    linger: float = 0.002
    grace: float = 30.0
    lease: float | None = None
    prefetch: int | None = None

    def __post_init__(self) -> None:
        check_range("concurrency", self.concurrency, 1, 10_000)
        check_range("fetch_batch_size", self.fetch_batch_size, 1, MAX_BATCH)
        check_range("overfetch_factor", self.overfetch_factor, 1, 100)
        check_range("min_interval", self.min_interval, 0, 3_600)
        check_range("max_interval", self.max_interval, 0.001, 30)
        check_range("grace", self.grace, 0, 86_400)
        check_range("lease", self.lease, MIN_LEASE_S, MAX_LEASE_S)
        check_range("prefetch", self.prefetch, 0, 10_000)

    @property
    def max_unstarted(self) -> int:
        """The maximum number of claimed messages that have not started."""
        return max(1, int(self.fetch_batch_size * self.overfetch_factor))

    @property
    def max_prefetch(self) -> int:
        """The maximum number of messages to claim beyond the free slots."""
        return (
            self.max_unstarted if self.prefetch is None else min(self.max_unstarted, self.prefetch)
        )
