"""What a process of a storm does from its first moment to its last."""

import asyncio
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable

import structlog
import uvloop

from penstock.errors import OutcomeUnknown, StoreBusy, StoreError, StoreUnreachable
from tests.faults.storm import mariadb, postgres, sqlite
from tests.faults.storm.consumer import Consumer
from tests.faults.storm.holding import DRIVER_ERRORS
from tests.faults.storm.meddler import Meddler
from tests.faults.storm.part import Part
from tests.faults.storm.producer import Producer
from tests.faults.storm.product import Product
from tests.faults.storm.scene import Scene, Stores

PR_SET_PDEATHSIG = 1
# A process that could not open the store in time; whoever started it tries again.
TRY_AGAIN = 75
PARTS: dict[str, type[Part]] = {
    "producer": Producer,
    "consumer": Consumer,
    "product": Product,
    "meddler": Meddler,
}
HOLDERS: dict[Stores, dict[str, Callable[[Scene, str], None]]] = {
    "sqlite": {"gate": sqlite.hold_gate, "transaction": sqlite.hold_transaction},
    "postgres": {
        "snapshot": postgres.hold_snapshot,
        "uncommitted": postgres.hold_uncommitted,
        "rows": postgres.hold_rows,
    },
    "mariadb": {
        "snapshot": mariadb.hold_snapshot,
        "uncommitted": mariadb.hold_uncommitted,
        "rows": mariadb.hold_rows,
    },
    "redis": {},
}


def main(scene: Scene, role: str, name: str) -> None:
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log_to(scene, name)
    if role in HOLDERS[scene.store]:
        hold(scene, role, name)
        return
    # Both loops that people use.
    factory = uvloop.new_event_loop if name.endswith(("1", "3", "5")) else None
    with asyncio.Runner(loop_factory=factory) as runner:
        try:
            runner.run(play(scene, role, name))
        except (StoreBusy, StoreUnreachable, OutcomeUnknown):
            # In one piece: whoever is killed while it tells of a cause would seem to fail of it.
            traceback.print_exc(chain=False)
            sys.exit(TRY_AGAIN)


def hold(scene: Scene, role: str, name: str) -> None:
    """The server may go down meanwhile: then nothing is held any more."""
    try:
        HOLDERS[scene.store][role](scene, name)
    except (*DRIVER_ERRORS, StoreError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)


async def play(scene: Scene, role: str, name: str) -> None:
    await PARTS[role](scene, name).play()


def die_with_parent() -> None:
    """Also a stopped process ends with the storm, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False)


def log_to(scene: Scene, name: str) -> None:
    file = os.open(scene.logs / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    # A traceback that is drawn in colours costs more than what it tells of.
    renderer = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure([structlog.processors.add_log_level, stamp, renderer])
