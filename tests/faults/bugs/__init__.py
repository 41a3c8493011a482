"""Queues that break one promise each, and the class of violation that must be found."""

from . import claiming, counting, publishing, settling
from .bug import Bug

BUGS: tuple[type[Bug], ...] = (
    *publishing.BUGS,
    *claiming.BUGS,
    *counting.BUGS,
    *settling.BUGS,
)

__all__ = ["BUGS", "Bug"]
