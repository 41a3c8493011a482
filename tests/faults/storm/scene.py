"""Where a storm takes place: its files, its store, its queues, its schedules."""

from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.local import Broker
from penstock.model.message import Draft, Moment
from penstock.model.queue import Missed, Queue, Schedule
from penstock.rules import cron
from tests import checker
from tests.faults.storm.bodies import NO_ARGUMENTS, body_of

Workers = Literal["core", "real", "both"]
Stores = Literal["sqlite", "postgres", "mariadb", "redis"]
BACKOFF = {"kind": "exponential", "initial": 0.1, "factor": 2, "max": 0.8, "jitter": "equal"}
# The presets that count differently, with leases so short that many run out.
QUEUES: dict[str, dict[str, Any]] = {
    "plain": {"lease": 1.5, "backoff": BACKOFF},
    "counted": {"preset_name": "relay", "lease": 1.0},
    "patient": {
        "retry": {"count": "deliveries", "on_expiry": "backoff"},
        "ordering": "ready_time",
        "lease": 2.0,
        "backoff": BACKOFF,
    },
    "mail": {"ordering": "fifo", "lease": 1.2, "backoff": BACKOFF},
    "jobs": {"lease": 1.5, "backoff": BACKOFF},
    # A killer is dead after so many workers.
    "killers": {"lease": 1.5, "max_deliveries": 5},
}
# Messages that end their worker, and innocent ones, which must all be completed: only workers as
# users have them take these, and no operator cancels one.
KILLERS = "killers"
SHARED_QUEUES = [name for name in QUEUES if name != KILLERS]
CRON = "*/2 * * * * *"


class Scene(Struct, frozen=True):
    """What every process of a storm is told."""

    directory: Path
    store: Stores
    urls: tuple[str, ...]
    seed: int
    workers: Workers = "both"

    @property
    def url(self) -> str:
        """The shortest way to the store."""
        return self.urls[0]

    def way(self, name: str) -> str:
        """The url for the process with this name: all of a slot have the same one."""
        slot = name.partition(".")[0]
        return self.urls[int(slot.rpartition("-")[2]) % len(self.urls)]

    @property
    def history(self) -> Path:
        return self.directory / "history"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"


# One that nobody touches again, and the one that the product's workers declare at every start.
SCHEDULES = (
    Schedule("cron", CRON, Draft(queue="plain", type="cron", body=body_of("cron"))),
    Schedule("tick", CRON, Draft(queue="jobs", type="tick", body=NO_ARGUMENTS)),
)


async def set_up(broker: Broker) -> list[Schedule]:
    for name, settings in QUEUES.items():
        await broker.admin.create_queue(name, **settings)
    return [
        await broker.admin.schedule(replace(schedule, missed=Missed.ALL)) for schedule in SCHEDULES
    ]


def limits(queue: Queue) -> checker.Queue:
    """What the checker must know of a queue."""
    settings = queue.settings
    return checker.Queue(
        queue.name,
        settings.max_attempts,
        settings.deliveries_limit,
        settings.retry.count,
        settings.retry.on_expiry,
    )


def ticks(schedule: Schedule, first_at: Moment) -> checker.Schedule:
    """Every tick up to the next one that is still to come."""
    moments: list[Moment] = []
    moment = first_at
    while moment < schedule.next_at:
        moments.append(moment)
        moment = cron.find_next_tick(schedule.cron, schedule.timezone, moment)
    return checker.Schedule(schedule.draft.type, tuple(moments))
