"""Keeps leases alive while a handler holds the GIL and stops every thread of the worker.

The worker writes its leases to memory that it shares with a small standby process: at each claim
before anything runs, and about once a second. After a third of a lease without a report, that
process renews the lease itself (standby_process.py). A report wakes no process.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TypeAlias

import msgspec
import structlog

from penstock.client.brokers import StoreAddress
from penstock.model.message import Leased
from penstock.worker.context import Context
from penstock.worker.standby_process import (
    HEARD_AT,
    MEMORY_SIZE,
    SHORT_LEASE_S,
    SHORTEST,
    LeaseMemory,
)

log = structlog.get_logger()
PROGRAM = Path(__file__).with_name("standby_process.py")
BEAT_INTERVAL_S = 1.0
# The process takes over after a third of a lease; this many beats must fit into it.
BEATS_PER_THIRD = 3
# Claims are added to this many bytes before the whole list is rewritten.
MAX_ADDED_SIZE = 1 << 18
FIRST_RESTART_S, LONGEST_RESTART_S = 1.0, 60.0
LOOP_STALL_S = 2.0
LATE_BEAT_S = 1.0
MAX_NAMES = 10
GIL_ADVICE = (
    'no Python code ran meanwhile: a handler held the GIL (run it with executor="process"),'
    " or the process was stopped"
)
LOOP_ADVICE = 'a coroutine blocked the event loop; make it a plain def, or use executor="process"'
# Fence, lease, bound, ids and tokens, as LeaseMemory has them.
Group: TypeAlias = tuple[int, float, float | None, list[int], list[str | None] | None]
encode = msgspec.json.Encoder().encode


def is_supported() -> bool:
    """True where a stopped worker can be distinguished from a busy one (Linux)."""
    frozen = getattr(sys, "frozen", False)
    shares = hasattr(os, "memfd_create") and os.path.exists("/proc/self/stat")
    return shares and bool(sys.executable) and not frozen


class StandbyProcess:
    """Starts the standby process, and restarts it with a growing delay."""

    def __init__(self, address: StoreAddress) -> None:
        self.address = address
        self.process: subprocess.Popen[bytes] | None = None
        self.memory: LeaseMemory | None = None
        self.restart_at = 0.0
        self.restart_wait = FIRST_RESTART_S
        self.reported = False

    def ensure(self) -> LeaseMemory | None:
        """Starts the process if it does not run. Returns the memory shared with it, if it does."""
        if self.process is not None and self.process.poll() is not None:
            self.give_up(f"it exited with {self.process.returncode}")
        if self.process is None and time.monotonic() >= self.restart_at:
            try:
                self.start()
            except OSError as error:
                self.give_up(str(error))
        return self.memory

    def start(self) -> None:
        file = os.memfd_create("penstock-leases")
        try:
            os.ftruncate(file, MEMORY_SIZE)
            self.memory = LeaseMemory(file)
            self.memory.moments[SHORTEST] = inf
            command = [sys.executable, "-P", str(PROGRAM), str(os.getpid()), str(file)]
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(file,),
                process_group=0,
                bufsize=0,
            )
        finally:
            os.close(file)
        address = {"url": self.address.url, "key": self.address.key, "path": sys.path}
        self.call(encode(address) + b"\n")

    def call(self, text: bytes = b".") -> None:
        """Reports a short lease. It never blocks: a full pipe has the same effect."""
        if self.process is not None and self.process.stdin is not None:
            try:
                os.set_blocking(self.process.stdin.fileno(), False)
                self.process.stdin.write(text)
            except OSError as error:
                self.give_up(str(error))

    def give_up(self, why: str) -> None:
        """Schedules a restart with growing delay. Runs continue without the standby."""
        if not self.reported:
            self.reported = True
            log.warning("standby_heartbeat_exited", reason=why)
        self.stop()
        self.restart_at = time.monotonic() + self.restart_wait
        self.restart_wait = min(2 * self.restart_wait, LONGEST_RESTART_S)

    def stop(self) -> None:
        if self.process is not None:
            if self.process.stdin is not None:
                self.process.stdin.close()
            self.process.kill()
            self.process.wait()
        self.process, self.memory = None, None


class Standby:
    """Reports held leases to the standby process, and logs stalls of the GIL or the loop."""

    def __init__(
        self,
        address: StoreAddress,
        held: dict[int, Context],
        grace: float,
        running: Callable[[], list[str]],
    ) -> None:
        self.held = held
        self.grace = grace
        self.running = running
        self.tokens = address.tokens
        # None where a standby is not supported.
        self.process = StandbyProcess(address) if is_supported() else None
        # Guards the process and the memory shared with it.
        self.mutex = threading.Lock()
        # The size from which the whole list is rewritten instead of a claim added to it.
        self.full_size = 0
        # The last report to the process contained leases.
        self.reported = False
        self.home = asyncio.get_running_loop()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.claims = asyncio.Event()
        # Nothing is held, and the next claim must end the pause.
        self.idle = True
        self.due_at = inf
        self.shortest_lease = inf
        # As of the last beat: running handlers, held runs that had not ended; and types since.
        self.names: list[str] = []
        self.open: list[Context] = []
        self.recent: set[str] = set()
        self.pinged_at: float | None = None
        self.late_at = -inf

    def prepare(self, lease: float) -> None:
        """Starts the process ahead of the first claim if leases are too short to start it then."""
        if self.process is not None and lease < SHORT_LEASE_S:
            with self.mutex:
                self.process.ensure()
                self.process.call()

    def report_claimed(self, deliveries: Sequence[Leased], lease: float, *, plain: bool) -> None:
        """Reports claimed messages before any of them runs. Called on the worker's loop.

        `plain` means that all have that lease, and no timeout.
        """
        self.recent.update({each.type for each in deliveries})
        with self.mutex:
            groups = self.groups_of_claim(deliveries, lease, plain)
            shortest = self.shortest_lease
            self.shortest_lease = min(shortest, min((group[1] for group in groups), default=inf))
            if self.process is not None:
                self.add(self.process, groups)
                # The process may be about to sleep for longer than a third of this lease.
                if self.shortest_lease < min(shortest, SHORT_LEASE_S):
                    self.process.call()
        if self.idle:
            self.idle, self.due_at = False, time.monotonic()
            if self.loop is not None:
                with contextlib.suppress(RuntimeError):
                    self.loop.call_soon_threadsafe(self.claims.set)

    def add(self, process: StandbyProcess, groups: list[Group]) -> None:
        memory = process.memory
        if memory is None or memory.length > self.full_size:
            self.write_all(process, self.held.copy().values())
            return
        self.reported = True
        self.sign_life(memory)
        memory.append(encode_line(groups))

    def write_all(self, process: StandbyProcess, held: Iterable[Context]) -> None:
        memory = process.ensure()
        if memory is None:
            return
        groups = self.groups_of(each for each in held if each.renew_at < inf)
        self.reported = bool(groups)
        self.sign_life(memory)
        memory.replace(encode_line(groups) if groups else b"")
        self.full_size = max(MAX_ADDED_SIZE, 2 * memory.length)

    def sign_life(self, memory: LeaseMemory) -> None:
        """Written before the leases, so that new ones are never taken for overdue."""
        memory.moments[SHORTEST] = self.shortest_lease
        memory.moments[HEARD_AT] = time.monotonic()

    def groups_of_claim(
        self, deliveries: Sequence[Leased], lease: float, plain: bool
    ) -> list[Group]:
        fence = deliveries[0].fence
        # Fences only grow, so an equal first and last fence means one fence for all.
        if plain and self.tokens is None and fence == deliveries[-1].fence:
            return [(fence, lease, None, [each.id for each in deliveries], None)]
        contexts = (self.held.get(each.id) for each in deliveries)
        return self.groups_of(each for each in contexts if each is not None)

    def groups_of(self, contexts: Iterable[Context]) -> list[Group]:
        groups: dict[tuple[int, float, float | None], list[int]] = {}
        latest_start = time.monotonic() + BEAT_INTERVAL_S
        for each in contexts:
            bound = None
            if each.limit is not None:
                started = each.until < inf
                bound = (each.until if started else latest_start + each.limit) + self.grace
            groups.setdefault((each.fence, each.lease, bound), []).append(each.id)
        return [(*key, ids, tokens_of(self.tokens, key[0], ids)) for key, ids in groups.items()]

    async def run(self) -> None:
        """Sends beats forever. Runs in the heartbeat thread."""
        self.loop, self.claims = asyncio.get_running_loop(), asyncio.Event()
        while True:
            began = time.monotonic()
            self.warn_of_stall(began - self.due_at)
            self.beat()
            await self.pause(began)

    def beat(self) -> None:
        with self.mutex:
            held = [each for each in self.held.copy().values() if each.renew_at < inf]
            self.shortest_lease = min((each.lease for each in held), default=inf)
            if self.process is not None and (held or self.reported):
                self.write_all(self.process, held)
        self.names, self.recent = self.running(), set()
        self.open = [each for each in held if not each.over]
        if held and self.pinged_at is None:
            self.pinged_at = time.monotonic()
            with contextlib.suppress(RuntimeError):
                self.home.call_soon_threadsafe(self.answer_ping, self.pinged_at)

    async def pause(self, began: float) -> None:
        """Sleeps until the next beat, counted from when the last one began."""
        self.due_at = began + min(BEAT_INTERVAL_S, self.shortest_lease / 3 / BEATS_PER_THIRD)
        self.claims.clear()
        self.idle = True
        # Checked after the flag is set: a later claim ends the wait.
        if not self.held:
            await self.claims.wait()
            return
        self.idle = False
        await asyncio.sleep(self.due_at - time.monotonic())

    def warn_of_stall(self, late: float) -> None:
        if late > LATE_BEAT_S:
            self.late_at = time.monotonic()
        if late > self.shortest_lease / 3:
            names = format_names(self.suspects())
            log.warning("gil_held", seconds=round(late, 1), tasks=names, advice=GIL_ADVICE)

    def suspects(self) -> Iterator[str]:
        """Yields the handlers that may have run since the last beat, also ended ones."""
        yield from self.names
        yield from self.running()
        for context in self.open:
            if context.over:
                yield context.delivery.type or context.queue
        yield from self.recent.copy()

    def answer_ping(self, pinged_at: float) -> None:
        """Measures the delay of the worker's loop, on which it runs."""
        now = time.monotonic()
        self.pinged_at, late = None, now - pinged_at
        # If the beats were late as well, no thread ran: the GIL was held.
        gil_held = self.late_at >= pinged_at or now - self.due_at > LATE_BEAT_S
        if late > LOOP_STALL_S and not gil_held:
            log.warning(
                "event_loop_stalled",
                seconds=round(late, 1),
                tasks=format_names(self.names or self.suspects()),
                advice=LOOP_ADVICE,
            )

    def stop(self) -> None:
        with self.mutex:
            if self.process is not None:
                self.process.stop()


def encode_line(groups: list[Group]) -> bytes:
    return encode(groups) + b"\n"


def tokens_of(
    tokens: Mapping[tuple[int, int], str] | None, fence: int, ids: list[int]
) -> list[str | None] | None:
    return None if tokens is None else [tokens.get((id, fence)) for id in ids]


def format_names(names: Iterable[str]) -> str:
    listed = sorted(set(names))
    more = f" and {len(listed) - MAX_NAMES} more" if len(listed) > MAX_NAMES else ""
    return ", ".join(listed[:MAX_NAMES]) + more
