"""The standby process: renews the leases of a worker whose Python threads are stalled.

Started as `python -P standby_process.py WORKER_PID MEMORY_FD`. It imports nothing of penstock
before it has to renew a lease, so that it stays small.

The worker writes its leases to shared memory (LeaseMemory), which wakes no process. The standard
input is a pipe from the worker. Its first line is a JSON object with the `url` and `key` of the
store and the module search `path`. Each byte after it reports a short lease: the process imports
the store's driver, and looks at the memory. It exits when the pipe closes.
"""

import os
import select
import signal
import sys
from mmap import mmap
from time import monotonic

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

    from penstock.model.store_types import Answer, Extension

    Extend = Callable[[Sequence[Extension]], Awaitable[list[Answer]]]

RECEIVE_SIZE = 1 << 16
# A shorter lease leaves no time to import the store's driver on demand.
SHORT_LEASE_S = 15.0
# A forked copy of the worker may keep the pipe open, so the parent is polled as well.
LOOK_INTERVAL_S = SHORT_LEASE_S / 3
RETRY_INTERVAL_S = 0.5
# Bytes of each of the two areas; untouched pages take no memory.
AREA_SIZE = 1 << 25
FIRST_AREA = 64
MEMORY_SIZE = FIRST_AREA + 2 * AREA_SIZE
LENGTH_BITS = 32
STATE, HEARD_AT, SHORTEST = 0, 1, 2


class LeaseMemory:
    """The held leases of a worker, in memory that it shares with its standby process.

    Each line of an area is a JSON list of groups [fence, lease, bound, ids, tokens]: a group is
    not renewed after the moment `bound`, and `tokens` are the lock tokens of messages claimed over
    HTTP. Claims are appended to the current area. A full list goes to the other area, which then
    becomes the current one. One aligned word has the generation, whose last bit is the area, and
    the length in use, so that the reader never sees half a record, wherever the writer stopped.
    """

    def __init__(self, file: int) -> None:
        self.memory = mmap(file, MEMORY_SIZE)
        self.words = memoryview(self.memory)[:FIRST_AREA].cast("Q")
        self.moments = memoryview(self.memory)[:FIRST_AREA].cast("d")

    @property
    def length(self) -> int:
        return self.words[STATE] & ((1 << LENGTH_BITS) - 1)

    def append(self, record: bytes) -> bool:
        """Adds leases to the known ones. Returns False if there is no room."""
        state, length = self.words[STATE], self.length
        if length + len(record) > AREA_SIZE:
            return False
        at = find_area(state) + length
        self.memory[at : at + len(record)] = record
        self.words[STATE] = state + len(record)
        return True

    def replace(self, record: bytes) -> None:
        """Replaces the known leases, with none if there are too many."""
        record = record if len(record) <= AREA_SIZE else b""
        state = ((self.words[STATE] >> LENGTH_BITS) + 1) % (1 << LENGTH_BITS) << LENGTH_BITS
        at = find_area(state)
        self.memory[at : at + len(record)] = record
        self.words[STATE] = state + len(record)

    def read(self) -> "tuple[int, list[bytes]]":
        """Returns the state and the records."""
        while True:
            state, length = self.words[STATE], self.length
            at = find_area(state)
            records = self.memory[at : at + length].splitlines()
            if self.words[STATE] >> LENGTH_BITS == state >> LENGTH_BITS:
                return state, records


def find_area(state: int) -> int:
    return FIRST_AREA + (state >> LENGTH_BITS & 1) * AREA_SIZE


class Held:
    """A claimed message, and when this process renews its lease next."""

    __slots__ = ("bound", "lease", "renew_at", "token")

    def __init__(self, lease: float, bound: float, token: "str | None") -> None:
        self.lease = lease
        self.bound = bound
        self.token = token
        self.renew_at = 0.0


class LeaseRenewer:
    def __init__(self, worker: int, memory: LeaseMemory, link: int) -> None:
        self.worker = worker
        self.memory = memory
        self.link = link
        self.received = b""
        self.address: dict[str, Any] = {}
        # The leases in the memory when it had this state.
        self.held: dict[tuple[int, int], Held] = {}
        self.state = -1
        self.preloaded = False

    def run(self) -> None:
        """Runs until the worker is gone."""
        while self.worker_lives():
            wait = min(LOOK_INTERVAL_S, max(0.0, self.next_due() - monotonic()))
            if select.select([self.link], [], [], wait)[0] and not self.receive():
                return
            if self.address and self.next_due() <= monotonic():
                self.renew_until_heard()

    def worker_lives(self) -> bool:
        return os.getppid() == self.worker

    def receive(self) -> bool:
        """Reads the store's address and the bytes after it. Returns False at end of file."""
        chunk = os.read(self.link, RECEIVE_SIZE)
        self.received += chunk
        address, opened, calls = self.received.partition(b"\n")
        if opened and not self.address:
            import json

            self.address = json.loads(address)
        if calls and not self.preloaded:
            self.preloaded = True
            self.preload()
        self.received = address + opened
        return bool(chunk)

    @property
    def heard_at(self) -> float:
        return self.memory.moments[HEARD_AT]

    def next_due(self) -> float:
        """Returns the next renewal. A sign of life postpones each by a third of its lease."""
        first = self.heard_at + self.memory.moments[SHORTEST] / 3
        if first > monotonic():
            return first
        self.refresh()
        moments = [self.due_at(each) for each in self.held.values()]
        return min(moments, default=float("inf"))

    def due_at(self, held: Held) -> float:
        return max(held.renew_at, self.heard_at + held.lease / 3)

    def refresh(self) -> None:
        """Reads the leases if the worker has written since."""
        import json

        if self.memory.words[STATE] == self.state:
            return
        self.state, records = self.memory.read()
        self.held.clear()
        for record in records:
            for fence, lease, bound, ids, tokens in json.loads(record):
                until = float("inf") if bound is None else bound
                for number, id in enumerate(ids):
                    self.held[id, fence] = Held(lease, until, tokens and tokens[number])

    def due(self) -> "dict[tuple[int, int], Held]":
        self.refresh()
        now = monotonic()
        for lock in [lock for lock, each in self.held.items() if each.bound <= now]:
            del self.held[lock]
        return {lock: each for lock, each in self.held.items() if self.due_at(each) <= now}

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

        loop, called = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self.link, called.set)
        stalled_at = self.heard_at
        try:
            while self.worker_lives() and self.heard_at == stalled_at and not called.is_set():
                if worker_runs(self.worker) and (due := self.due()):
                    await self.renew(extend, due)
                wait = min(RETRY_INTERVAL_S, max(0.05, self.next_due() - monotonic()))
                try:
                    async with asyncio.timeout(wait):
                        await called.wait()
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
    LeaseRenewer(int(sys.argv[1]), LeaseMemory(int(sys.argv[2])), link=0).run()


if __name__ == "__main__":
    main()
