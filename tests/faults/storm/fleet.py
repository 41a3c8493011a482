"""The processes of a storm: started, signalled by their own handle, and all ended in the end."""

import asyncio
import os
import select
import signal
import time
from multiprocessing import get_context
from pathlib import Path

from tests.checker import Recorder
from tests.faults.storm import program
from tests.faults.storm.scene import Scene

context = get_context("forkserver")
# Each process is forked from one that has imported everything: it begins in a moment.
PRELOAD = [
    "tests.faults.storm.nursery",
    "penstock.stores.sqlite.store",
    "penstock.stores.postgres.store",
    "penstock.stores.mariadb.store",
]
CAP = 30.0
HOPELESS = 30
# Whoever could not start tries again after so many seconds.
REST = 0.5
NOT_ASKED = (-signal.SIGKILL,)
# A process that is asked before it listens ends at once.
ASKED = (*NOT_ASKED, -signal.SIGTERM, 0)


class Child:
    """One start of a process. Its handle names it and nobody else, also when its pid is reused."""

    def __init__(self, scene: Scene, role: str, name: str) -> None:
        self.role = role
        self.name = name
        self.process = context.Process(
            target=program.main, args=(scene, role, name), name=name, daemon=True
        )
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid
        self.handle = open_handle(self.pid)
        self.stopped = False
        self.asked = False
        # Stopped inside a write, it keeps everybody from writing.
        self.cutting = False

    @property
    def number(self) -> int:
        """Of its start, in its place."""
        return int(self.name.rpartition(".")[2])

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            signal.pidfd_send_signal(self.handle, number)

    @property
    def alive(self) -> bool:
        return not self.gone(0)

    def gone(self, patience: float) -> bool:
        """Within so many seconds."""
        return self.handle < 0 or bool(select.select([self.handle], [], [], patience)[0])

    @property
    def frozen(self) -> bool:
        """Every thread of it is stopped."""
        try:
            tasks = list(Path(f"/proc/{self.pid}/task").iterdir())
        except (FileNotFoundError, ProcessLookupError):
            return True
        return all(state(task) in "TZX" for task in tasks)

    def ask(self) -> None:
        """To come to an end by itself."""
        self.asked = True
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """No exit handler runs, nothing is flushed."""
        self.signal(signal.SIGKILL)
        self.gone(CAP)

    def close(self) -> int | None:
        """Its exit code."""
        self.process.join(CAP)
        if self.handle >= 0:
            os.close(self.handle)
            self.handle = -1
        return self.process.exitcode


class Slot:
    """A place in the fleet: when its process is gone, another takes it, under a new name."""

    def __init__(self, scene: Scene, role: str, number: int) -> None:
        self.scene = scene
        self.role = role
        self.name = f"{role}-{number}"
        self.starts = 0
        self.child: Child | None = None
        self.rests_until = 0.0

    def start(self) -> None:
        self.starts += 1
        self.child = Child(self.scene, self.role, f"{self.name}.{self.starts}")

    @property
    def at_work(self) -> bool:
        """Its process has recorded something."""
        history = self.scene.history / f"{self.name}.{self.starts}.jsonl"
        return history.exists() and history.stat().st_size > 0

    @property
    def running(self) -> Child | None:
        """Its process, if that is neither gone nor stopped."""
        child = self.child
        return child if child and child.alive and not child.stopped else None


class Fleet:
    def __init__(self, scene: Scene, recorder: Recorder, roles: dict[str, int]) -> None:
        context.set_forkserver_preload(PRELOAD)
        self.scene = scene
        self.recorder = recorder
        self.dark = False
        self.slots = [
            Slot(scene, role, number + 1) for role, most in roles.items() for number in range(most)
        ]
        self.holders: list[Child] = []
        # Starts that found the store blocked, and ends that nobody asked for.
        self.busy = 0
        self.crashes: list[str] = []

    def of(self, *roles: str) -> list[Slot]:
        return [slot for slot in self.slots if slot.role in roles]

    def hold(self, role: str) -> Child:
        """A process of its own that takes a lock and stops."""
        child = Child(self.scene, role, f"{role}-holder.{len(self.holders) + 1}")
        self.holders.append(child)
        return child

    def tend(self, slots: list[Slot]) -> None:
        """Whoever is gone is replaced, except while all shall be gone, or if it is hopeless."""
        for slot in [] if self.dark or len(self.crashes) > HOPELESS else slots:
            if slot.child is not None and not slot.child.alive:
                self.bury(slot)
            if slot.child is None and slot.rests_until < time.monotonic():
                slot.start()

    def kill(self, *slots: Slot) -> None:
        """All at once, whether they run or are stopped."""
        found = [(slot, slot.child) for slot in slots if slot.child and slot.child.alive]
        for _, child in found:
            self.recorder.fault("kill", child.name)
            child.signal(signal.SIGKILL)
        for slot, child in found:
            child.kill()
            self.heal(child)
            self.bury(slot)

    def bury(self, slot: Slot) -> None:
        """A failure is only expected at its start, and an end only if it was asked to."""
        child, slot.child = slot.child, None
        assert child is not None
        code = child.close()
        if code == program.TRY_AGAIN and not slot.at_work:
            self.busy += 1
            slot.rests_until = time.monotonic() + REST
        elif code not in (ASKED if child.asked else NOT_ASKED):
            self.crashes.append(f"{child.name} ended with exit code {code}")

    def wake(self, slot: Slot) -> None:
        """Lets a stopped process go on."""
        if slot.child is not None and slot.child.stopped and slot.child.alive:
            slot.child.signal(signal.SIGCONT)
            slot.child.stopped = False
            self.recorder.fault("cont", slot.child.name)
            self.heal(slot.child)

    def heal(self, child: Child) -> None:
        if child.cutting:
            child.cutting = False
            self.recorder.fault("heal", child.name)

    async def end(self, slots: list[Slot]) -> None:
        """Asks them to stop, and waits until they did."""
        children = [(slot, slot.child) for slot in slots if slot.child is not None]
        for _, child in children:
            child.ask()
        for slot, child in children:
            if not await asyncio.to_thread(child.gone, CAP):
                self.crashes.append(f"{child.name} did not stop within {CAP:g} s")
                child.kill()
            self.bury(slot)

    def destroy(self) -> None:
        """Nobody is left, whatever happened."""
        self.dark = True
        children = [slot.child for slot in self.slots if slot.child is not None]
        for child in children + self.holders:
            child.kill()
            child.close()


def open_handle(pid: int) -> int:
    """-1 if it is gone already."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return -1


def state(task: Path) -> str:
    """The kernel's letter: T is stopped, Z and X are gone."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        # It ended before or while it was read.
        return "X"
