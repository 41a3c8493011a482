"""Virtual processes that use the model of the contract under faults, and record it."""

from collections.abc import Callable, Generator, Sequence
from heapq import heappop, heappush
from itertools import count
from random import Random

from tests.checker import (
    Answer,
    Cancel,
    Claim,
    Claimed,
    End,
    Fault,
    Fire,
    Plan,
    Publish,
    Redrive,
    Schedule,
    Settle,
)
from tests.checker.events import AnyCall, AnyLine, Invoke, Result, Verb

from .queue import LEASE, SimulatedQueue

STORE_CLOCK = 1_700_000_000_000_000
MONOTONIC = 5_000_000_000_000
SECOND = 1_000_000
HEAL_AT = 8 * SECOND
TICKS = tuple(range(STORE_CLOCK, STORE_CLOCK + HEAL_AT, SECOND))
# Nobody sweeps during a cut; kills and stops are no excuse.
PLAN = Plan(("kill", "stop"), excuses=("cut",), fault_shadow=1.0, reclaim_within=0.8)
UNKNOWN = Answer("unknown")
OUTAGE = Answer("refused", "STORE_BUSY")

# A script yields the calls of one batch, or seconds to wait, and is sent the answers.
Script = Generator[Sequence[AnyCall] | float, list[Answer], None]
Role = Callable[["Process"], Script]


class Process:
    """Runs one script until it ends or is killed; while stopped, nothing reaches it."""

    def __init__(self, name: str, role: Role) -> None:
        self.name = name
        self.role = role
        self.script = role(self)
        self.numbers = count()
        self.alive = True
        self.busy = False
        self.stopped_until = 0


class Simulation:
    """One run: a storm until HEAL_AT, then calm until all is done."""

    def __init__(self, seed: int, queue: type[SimulatedQueue] = SimulatedQueue) -> None:
        self.random = Random(seed)
        self.queue = queue(self.random)
        self.now = 0
        self.cut_until = 0
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.order = count()
        self.lines: list[AnyLine] = []
        self.processes: list[Process] = []
        self.producing = 3
        self.ticked: set[int] = set()
        self.first_faults = [self.stop_long, self.kill]

    def run(self) -> list[AnyLine]:
        self.lines += [PLAN, self.queue.limits, Schedule("hourly", TICKS)]
        for number in range(3):
            self.start(f"producer-{number}", self.produce)
        for number in range(4):
            self.start(f"worker-{number}", self.work)
        for number in range(2):
            self.start(f"scheduler-{number}", self.fire)
        self.start("admin", self.administer)
        self.after(0.5, self.sweep)
        self.after(self.random.uniform(0.1, 0.5), self.harm)
        while self.events and self.now < 3 * HEAL_AT and not self.drained():
            self.now, _, event = heappop(self.events)
            self.queue.now = STORE_CLOCK + self.now
            event()
        stored = list(self.queue.dump())
        return [*self.lines, *stored, End(self.monotonic, self.queue.now, len(stored))]

    @property
    def monotonic(self) -> int:
        return MONOTONIC + self.now * 1000

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heappush(self.events, (self.now + int(seconds * SECOND), next(self.order), event))

    def drained(self) -> bool:
        if self.now < HEAL_AT + SECOND or self.producing or len(self.ticked) < len(TICKS):
            return False
        return not any(item.open for item in self.queue.items.values())

    def start(self, name: str, role: Role) -> None:
        process = Process(name, role)
        self.processes.append(process)
        self.after(self.random.uniform(0, 0.05), lambda: self.resume(process, None))

    def resume(self, process: Process, answers: list[Answer] | None) -> None:
        if not process.alive:
            return
        try:
            asked = next(process.script) if answers is None else process.script.send(answers)
        except StopIteration:
            process.alive = False
            return
        if isinstance(asked, float):
            self.after(asked, lambda: self.deliver(process, []))
        else:
            self.call(process, asked)

    def deliver(self, process: Process, answers: list[Answer], numbers: Sequence[int] = ()) -> None:
        """The answers reach the process, when it lives and is not stopped."""
        if self.now < process.stopped_until:
            wait = (process.stopped_until - self.now) / SECOND
            self.after(wait, lambda: self.deliver(process, answers, numbers))
        elif process.alive:
            self.queue.told.update({(process.name, number): self.queue.now for number in numbers})
            for number, answer in zip(numbers, answers, strict=True) if numbers else ():
                self.lines.append(Result(process.name, number, self.monotonic, answer))
            self.resume(process, answers)

    def call(self, process: Process, calls: Sequence[AnyCall]) -> None:
        """Sends a batch; the request or the answer may be lost or late."""
        numbers = [next(process.numbers) for _ in calls]
        for number, call in zip(numbers, calls, strict=True):
            self.lines.append(Invoke(process.name, number, self.monotonic, call))
            self.note(call)
        luck = self.random.random() if self.now < HEAL_AT else 1.0
        travel = self.random.uniform(0.001, 0.01)
        if luck < 0.06:
            self.after(0.3, lambda: self.deliver(process, [UNKNOWN] * len(calls), numbers))
            if luck > 0.02:
                self.after(self.random.uniform(0.001, 0.6), lambda: self.apply_late(calls))
        else:
            self.after(travel, lambda: self.commit(process, calls, numbers))

    def note(self, call: AnyCall) -> None:
        match call:
            case Settle(verb, id, fence):
                self.queue.asked[verb, id, fence] += 1
            case Redrive(id):
                self.queue.asked["redrive", id, 0] += 1

    def apply_late(self, calls: Sequence[AnyCall]) -> None:
        self.queue.token = None
        self.queue.apply(calls)

    def commit(self, process: Process, calls: Sequence[AnyCall], numbers: Sequence[int]) -> None:
        """A killed process may have sent its request, or not."""
        if not process.alive and self.random.random() < 0.5:
            return
        self.queue.token = (process.name, numbers[0])
        down = self.now < self.cut_until
        answers = [OUTAGE] * len(calls) if down else self.queue.apply(calls)
        travel = self.random.uniform(0.001, 0.01)
        self.after(travel, lambda: self.deliver(process, answers, numbers))

    def sweep(self) -> None:
        if self.now >= self.cut_until:
            self.queue.token = None
            self.queue.sweep()
        self.after(0.5, self.sweep)

    def harm(self) -> None:
        """Kills, stops and cuts, most of all those who hold something."""
        if self.now > HEAL_AT - SECOND:
            self.after((HEAL_AT - self.now) / SECOND, self.heal)
            return
        if not any(process.busy for process in self.processes if process.alive):
            self.after(0.05, self.harm)
            return
        faults = [self.kill, self.stop, self.stop, self.cut]
        fault = self.first_faults.pop() if self.first_faults else self.random.choice(faults)
        fault()
        self.after(self.random.uniform(0.2, 0.9), self.harm)

    def heal(self) -> None:
        self.lines.append(Fault(self.monotonic, "heal"))

    def victim(self) -> Process:
        alive = [p for p in self.processes if p.alive and "producer" not in p.name]
        return self.random.choice([p for p in alive if p.busy] or alive)

    def kill(self) -> None:
        victim = self.victim()
        victim.alive = False
        self.lines.append(Fault(self.monotonic, "kill", victim.name))
        self.start(f"{victim.name}+", victim.role)

    def stop(self) -> None:
        self.stop_for(self.random.choice((0.2, 0.8, 1.8, 3.0)))

    def stop_long(self) -> None:
        self.stop_for(3.0)

    def stop_for(self, length: float) -> None:
        victim = self.victim()
        if self.now < victim.stopped_until or self.now + length * SECOND > HEAL_AT:
            return
        victim.stopped_until = self.now + int(length * SECOND)
        self.lines.append(Fault(self.monotonic, "stop", victim.name))
        cont = Fault(self.monotonic + int(length * 1_000_000_000), "cont", victim.name)
        self.after(length, lambda: self.lines.append(cont))

    def cut(self) -> None:
        if self.random.random() < 0.3:
            self.cut_until = self.now + SECOND // 2
            self.queue.cut_until = STORE_CLOCK + self.cut_until
            self.lines.append(Fault(self.monotonic, "cut", "store"))
            self.after(0.5, lambda: self.lines.append(Fault(self.monotonic, "heal", "store")))

    def produce(self, process: Process) -> Script:
        name = process.name
        for number in range(8):
            size = self.random.choice((1, 1, 2))
            batch = f"{name}/{number}" if size > 1 else None
            drafts = [self.draft(f"{name}/{number}.{item}", batch) for item in range(size)]
            answers = yield drafts
            while answers[0].outcome == "unknown" and drafts[0].dedup:
                answers = yield drafts
            yield self.random.uniform(0.05, 0.8)
        self.producing -= 1

    def draft(self, label: str, batch: str | None) -> Publish:
        key = self.random.choice(("a", "b")) if self.random.random() < 0.4 else None
        late = self.random.random() < 0.2
        due_at = self.queue.now + int(self.random.uniform(0.2, 1.5) * SECOND) if late else None
        if batch is None and self.random.random() < 0.25:
            shared = f"same-{self.random.randrange(3)}"
            return Publish(self.random.choice((shared, label)), "work", dedup=shared)
        return Publish(label, "work", ordering_key=key, due_at=due_at, batch=batch)

    def work(self, process: Process) -> Script:
        begins = self.random.random() < 0.5
        while True:
            (answer,) = yield [Claim("work", begins)]
            process.busy = bool(answer.claims)
            for claimed in answer.claims:
                yield from self.handle(claimed, begins)
            if not answer.claims:
                yield self.random.uniform(0.05, 0.25)

    def handle(self, claimed: Claimed, begins: bool) -> Script:
        if self.random.random() < 0.1:
            yield from self.settle("release", claimed)
            return
        if begins and claimed.deliveries >= 2:
            yield from self.settle("begin", claimed)
        if self.random.random() < 0.2:
            yield LEASE * 0.6
            yield from self.settle("extend", claimed)
        yield self.random.choice((0.01, 0.05, 0.2, LEASE * 0.95))
        yield from self.settle(self.verdict(claimed), claimed)

    def verdict(self, claimed: Claimed) -> Verb:
        """Some bodies are poison, the others fail now and then."""
        if claimed.label.endswith("3.0"):
            return "nack"
        verbs: list[Verb] = ["complete", "nack", "reject", "fail", "release"]
        return self.random.choices(verbs, (70, 18, 4, 4, 4))[0]

    def settle(self, verb: Verb, claimed: Claimed) -> Script:
        """Without an answer it asks again, or goes on."""
        while True:
            (answer,) = yield [Settle(verb, claimed.id, claimed.fence)]
            if answer.outcome != "unknown" or self.random.random() < 0.3:
                return

    def fire(self, process: Process) -> Script:
        for tick in TICKS:
            while self.queue.now < tick:
                yield 0.1
            while True:
                (answer,) = yield [Fire("hourly", tick)]
                if answer.outcome == "ok":
                    break
                yield 0.1
            self.ticked.add(tick)

    def administer(self, process: Process) -> Script:
        while self.now < HEAL_AT - SECOND:
            yield self.random.uniform(0.2, 0.8)
            ids = list(self.queue.items)
            if ids and self.random.random() < 0.5:
                yield [Cancel(self.random.choice(ids), self.random.random() < 0.3)]
            elif ids:
                ended = [item.id for item in self.queue.items.values() if not item.open]
                dead = [item.id for item in self.queue.at("dead")]
                yield [Redrive(self.random.choice(dead or ended or ids))]
