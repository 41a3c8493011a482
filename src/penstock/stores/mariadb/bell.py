"""Wakes who waits on the same server at once. Only ever a hint: it looks by itself as well.

Whoever waits for a queue holds a lock of its name, and sleeps; whoever publishes asks the server
who holds it, and ends that sleep. A user may do that to its own sessions, and needs no right to.
"""

import time
from collections.abc import Collection
from hashlib import blake2b

from penstock.stores.mariadb.statement import Raw, literal, text_of

# Queues that are rung for at once, and that are listened to.
RUNG, HEARD = 8, 64
# Seconds in which a queue is rung for once.
PAUSE = 0.005
SILENT = text_of("listen", locks=Raw("release_all_locks()"))


class Bell:
    def __init__(self, seal: str) -> None:
        # Stores share the names of a server, and the seal is not for it.
        self.store = blake2b(seal.encode(), digest_size=8).hexdigest()
        self.rung: set[int] = set()
        self.began = 0.0

    def lock(self, queue_id: int) -> str:
        return f"penstock:{self.store}:{queue_id}"

    def listen(self, queue_ids: Collection[int]) -> list[str]:
        locks = [f"get_lock({literal(self.lock(each))}, 0)" for each in sorted(queue_ids)[:HEARD]]
        return [text_of("listen", locks=Raw(", ".join(locks)))] if locks else []

    def ring(self, queue_ids: Collection[int]) -> list[str]:
        now = time.monotonic()
        if now - self.began > PAUSE:
            self.rung, self.began = set(), now
        queues = sorted(set(queue_ids) - self.rung)[:RUNG]
        self.rung.update(queues)
        return [text_of("ring", lock=self.lock(each)) for each in queues]
