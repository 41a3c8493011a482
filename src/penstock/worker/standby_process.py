"""The standby process: renews the leases of a worker whose Python threads are stalled.

Started as `python -P standby_process.py WORKER_PID`. It imports nothing of penstock before it has
to renew a lease, so that it stays small. Its standard input is a socket from the worker, with
length-prefixed JSON records:

    ["open", {"url", "key", "path"}]        the store, and the module search path
    ["claimed", groups]                     leases in addition to the known ones
    ["held", groups]                        all leases; others are dropped

A group is [fence, lease, bound, ids, tokens]: it is not renewed after the moment `bound`, and
`tokens` are the lock tokens of messages claimed over HTTP. Every record is a sign of life. The
process exits when the socket closes.
"""

import json
import os
import select
import signal
import socket
import struct
import sys
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

    from penstock.model.store_types import Answer, Extension

    Extend = Callable[[Sequence[Extension]], Awaitable[list[Answer]]]

HEADER = struct.Struct("!I")
RECEIVE_SIZE = 1 << 16
# A forked copy of the worker may keep the socket open, so the parent is polled as well.
PARENT_CHECK_INTERVAL_S = 5.0
# A shorter lease leaves no time to import the store's driver on demand.
PRELOAD_LEASE_S = 15.0
RETRY_INTERVAL_S = 0.5


class Held:
    """A claimed message, and when this process renews its lease next."""

    __slots__ = ("bound", "lease", "renew_at", "token")

    def __init__(self, lease: float, bound: float, token: "str | None") -> None:
        self.lease = lease
        self.bound = bound
        self.token = token
        self.renew_at = 0.0


class LeaseRenewer:
    def __init__(self, worker: int, link: socket.socket) -> None:
        self.worker = worker
        self.link = link
        self.received = bytearray()
        self.held: dict[tuple[int, int], Held] = {}
        self.heard_at = monotonic()
        self.address: dict[str, Any] = {}
        self.preloaded = False

    def run(self) -> None:
        """Runs until the worker is gone."""
        while self.worker_lives():
            wait = min(PARENT_CHECK_INTERVAL_S, max(0.0, self.next_due() - monotonic()))
            if select.select([self.link], [], [], wait)[0]:
                if not self.receive():
                    return
            elif self.due():
                self.renew_until_heard()

    def worker_lives(self) -> bool:
        return os.getppid() == self.worker

    def receive(self) -> bool:
        """Reads available records. Returns False at end of file."""
        chunk = self.link.recv(RECEIVE_SIZE)
        self.received += chunk
        while len(self.received) >= HEADER.size:
            (length,) = HEADER.unpack_from(self.received)
            if len(self.received) < HEADER.size + length:
                break
            record = bytes(self.received[HEADER.size : HEADER.size + length])
            del self.received[: HEADER.size + length]
            self.take(*json.loads(record))
        return bool(chunk)

    def take(self, kind: str, content: "Any") -> None:
        self.heard_at = monotonic()
        if kind == "open":
            self.address = content
            return
        if kind == "held":
            self.held.clear()
        for fence, lease, bound, ids, tokens in content:
            until = float("inf") if bound is None else bound
            for number, id in enumerate(ids):
                self.held[id, fence] = Held(lease, until, tokens and tokens[number])
            if lease < PRELOAD_LEASE_S and not self.preloaded:
                self.preloaded = True
                self.preload()

    def next_due(self) -> float:
        """Returns the next renewal. A sign of life postpones each by a third of its lease."""
        moments = [
            max(each.renew_at, self.heard_at + each.lease / 3) for each in self.held.values()
        ]
        return min(moments, default=float("inf"))

    def due(self) -> "dict[tuple[int, int], Held]":
        now = monotonic()
        for lock in [lock for lock, each in self.held.items() if each.bound <= now]:
            del self.held[lock]
        return {
            lock: each
            for lock, each in self.held.items()
            if max(each.renew_at, self.heard_at + each.lease / 3) <= now
        }

    def preload(self) -> None:
        sys.path[:] = self.address["path"]
        import asyncio  # noqa: F401

        from penstock import stores

        if not self.remote:
            stores.preload(self.address["url"])

    @property
    def remote(self) -> bool:
        return bool(self.address["url"].startswith(("http://", "https://")))

    def renew_until_heard(self) -> None:
        """Renews over a temporary connection until the worker reports again."""
        import asyncio

        sys.path[:] = self.address["path"]
        try:
            asyncio.run(self.renew_by_store())
        except Exception as error:  # noqa: BLE001 - a driver error must not end this process
            # The type alone: the text of a driver may quote the store's URL.
            sys.stderr.write(f"penstock: standby heartbeat failed: {type(error).__name__}\n")
            select.select([self.link], [], [], RETRY_INTERVAL_S)

    async def renew_by_store(self) -> None:
        if self.remote:
            from penstock.client.client import Client

            async with Client(self.address["url"], key=self.address["key"]) as client:
                client.tokens.update(
                    (lock, each.token) for lock, each in self.held.items() if each.token
                )
                await self.renew_with(client.extend_many)
            return
        from penstock import stores

        if await stores.exists(self.address["url"]):
            async with await stores.open(self.address["url"]) as store:
                await self.renew_with(store.extend)

    async def renew_with(self, extend: "Extend") -> None:
        import asyncio

        loop, heard = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self.link, heard.set)
        try:
            while self.worker_lives() and not heard.is_set():
                if worker_runs(self.worker) and (due := self.due()):
                    await self.renew(extend, due)
                wait = min(RETRY_INTERVAL_S, max(0.05, self.next_due() - monotonic()))
                try:
                    async with asyncio.timeout(wait):
                        await heard.wait()
                except TimeoutError:
                    continue
        finally:
            loop.remove_reader(self.link)

    async def renew(self, extend: "Extend", due: "dict[tuple[int, int], Held]") -> None:
        """Extends by the ordinary fenced call. Leases that are refused are dropped."""
        from penstock.model.store_types import AnswerKind, Extension

        items = [Extension(id, fence, each.lease) for (id, fence), each in due.items()]
        for (lock, each), answer in zip(due.items(), await extend(items), strict=True):
            each.renew_at = monotonic() + each.lease / 3
            if answer.kind not in (AnswerKind.DONE, AnswerKind.BUSY):
                self.held.pop(lock, None)


def worker_runs(pid: int) -> bool:
    """Returns False if the process is stopped or dead: then its leases must expire."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("T", "t", "Z", "X")


def main() -> None:
    # Signals to the process group are for the worker, which needs its leases while it stops.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    LeaseRenewer(int(sys.argv[1]), socket.socket(fileno=0)).run()


if __name__ == "__main__":
    main()
