"""The peers, and their temporary environments made with uv or npm."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryDirectory
from typing import TypeAlias

import msgspec
from msgspec import Struct

ROOT = Path(__file__).parents[2]
OWN_UV = ROOT / ".tools/bin/uv"
FOLDER = Path(__file__).parent
INSTALL_TIMEOUT_S = 120.0


class Failed(Exception):
    """A peer that could not be installed, or did not finish."""


class Peer(Struct, frozen=True):
    """A queue to compare with. It drains `messages` in a few seconds."""

    name: str
    packages: tuple[str, ...]
    messages: int
    note: str = ""

    @property
    def script(self) -> Path:
        """The script of a Node peer; other peers are modules."""
        return FOLDER / f"{self.name}.cjs"


POSTGRES = [
    Peer("graphile_worker", ("graphile-worker@0.18.0", "pg@8.23.1"), 30_000, "Node.js"),
    Peer(
        "pgmq",
        ("pgmq==1.1.4", "asyncpg==0.32.0", "uvloop==0.23.0"),
        30_000,
        "a bare loop of 100: it has no worker",
    ),
    Peer("pgqueuer", ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"), 20_000),
    Peer(
        "faststream",
        (
            "faststream-sqlbroker==0.1.0a11",
            "faststream==0.7.8",
            "sqlalchemy[asyncio]==2.1.8",
            "asyncpg==0.32.0",
            "uvloop==0.23.0",
        ),
        10_000,
        "without an archive",
    ),
    Peer("procrastinate", ("procrastinate==3.10.0",), 1_000),
    Peer("huey", ("huey==3.5.4", "peewee==4.5.3"), 1_000, "loses the task of a crashed worker"),
    Peer(
        "celery",
        ("celery==5.7.0", "sqlalchemy==2.1.8"),
        1_000,
        "Celery calls this broker experimental",
    ),
]
REDIS = [
    Peer("bullmq", ("bullmq@5.81.5",), 20_000, "Node.js"),
    Peer("celery", ("celery[redis]==5.7.0",), 1_000),
]


class Step(Struct, frozen=True):
    """The result line of a script."""

    package: str
    version: str
    step: str
    messages: int
    seconds: float
    rate: float


Environment: TypeAlias = tuple[Sequence[str], dict[str, str]]


@contextmanager
def prepare(peer: Peer) -> Iterator[Environment]:
    """Yields the command that runs the script, and its environment variables."""
    if not peer.script.exists():
        yield make_python_command(peer), {}
        return
    with TemporaryDirectory() as place:
        install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", place]
        call([*install, *peer.packages], {})
        yield ["node", str(peer.script)], {"NODE_PATH": f"{place}/node_modules"}


def make_python_command(peer: Peer) -> list[str]:
    uv = shutil.which("uv") or str(OWN_UV)
    command = [uv, "run", "--quiet", "--isolated", "--no-project", "--python", sys.executable]
    for package in (*peer.packages, "psycopg[binary]==3.3.8"):
        command += ["--with", package]
    return [*command, "python", "-m", f"bench.peers.{peer.name}"]


def run(environment: Environment, step: str, url: str, count: int) -> Step:
    command, variables = environment
    output = call([*command, step, url, str(count)], variables)
    return msgspec.json.decode(output.splitlines()[-1], type=Step)


def call(command: Sequence[str], variables: dict[str, str]) -> str:
    environment = {**os.environ, **variables}
    try:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=PIPE, stderr=PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        raise Failed(f"{command[0]} is not installed") from None
    try:
        output, complaint = process.communicate(timeout=INSTALL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        # Children of uv do not end with uv.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise Failed(f"timed out after {INSTALL_TIMEOUT_S:g} s") from None
    if process.returncode:
        raise Failed(complaint.strip().splitlines()[-1])
    return output
