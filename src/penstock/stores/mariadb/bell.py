"""Wakes who waits on the same server at once. Only ever a hint: it looks by itself as well.

Whoever waits for a queue holds a lock of its name, and sleeps; whoever publishes asks the server
who holds it, and ends that sleep. A user may do that to its own sessions, and needs no right to.
"""

import time
from collections.abc import Collection
from hashlib import blake2b

from penstock.stores.mariadb.statement import RawSql, fill_statement, to_literal

# Queues that are rung for at once, and that are listened to.
RUNG, HEARD = 8, 64
# Seconds in which a queue is rung for once.
MIN_RING_INTERVAL_S = 0.005
SILENT = fill_statement("listen", locks=RawSql("release_all_locks()"))


class LocalWakeups:
    def __init__(self, seal: str) -> None:
        # Stores share the names of a server, and the seal is not for it.
        self.store = blake2b(seal.encode(), digest_size=8).hexdigest()
        self.rung: set[int] = set()
        self.began = 0.0

    def lock(self, queue_id: int) -> str:
        return f"penstock:{self.store}:{queue_id}"

    def listen(self, queue_ids: Collection[int]) -> list[str]:
        locks = [
            f"get_lock({to_literal(self.lock(each))}, 0)" for each in sorted(queue_ids)[:HEARD]
        ]
        return [fill_statement("listen", locks=RawSql(", ".join(locks)))] if locks else []

    def ring(self, queue_ids: Collection[int]) -> list[str]:
        now = time.monotonic()
        if now - self.began > MIN_RING_INTERVAL_S:
            self.rung, self.began = set(), now
        queues = sorted(set(queue_ids) - self.rung)[:RUNG]
        self.rung.update(queues)
        return [fill_statement("ring", lock=self.lock(each)) for each in queues]
