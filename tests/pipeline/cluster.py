"""Spark as others run it: a standalone master with workers, or a server of Spark Connect."""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from time import monotonic

import pyspark

from penstock.pipeline.session import write_home
from tests.servers.places import free_port

HOME = Path(pyspark.__file__).parent
SPARK_CLASS = HOME / "bin" / "spark-class"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
WAIT_LIMIT_S = 90.0


def environment(folder: Path) -> dict[str, str]:
    home = folder / "java"
    return {
        **os.environ,
        "JAVA_HOME": str(home if home.exists() else write_home(home)),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "PYSPARK_PYTHON": sys.executable,
    }


@contextmanager
def running(folder: Path, variables: Mapping[str, str], *words: object) -> Iterator[None]:
    with open(folder / "spark.log", "ab") as log:
        process = subprocess.Popen(
            [str(word) for word in words],
            cwd=folder,
            env={**environment(folder), **variables},
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> None:
    until = monotonic() + WAIT_LIMIT_S
    while monotonic() < until:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        Event().wait(0.1)
    raise TimeoutError(f"nothing answers on port {port}")


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """The URL of a master that has two workers.

    Each is a host of its own to Spark, which starts no task twice on the same one.
    """
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        node = ("--host", "127.0.0.1", "--port", port, "--webui-port", free_port())
        stack.enter_context(running(folder, {}, SPARK_CLASS, MASTER, *node))
        answers(port)
        for host in ("127.0.0.1", "127.0.0.2"):
            small = ("--host", host, "--webui-port", free_port(), "--cores", 1, "--memory", "1g")
            here = {"SPARK_LOCAL_IP": host}
            stack.enter_context(running(folder, here, SPARK_CLASS, WORKER, *small, url))
        yield url


@contextmanager
def connect(folder: Path) -> Iterator[str]:
    """The URL of a server that listens on the loopback address, and wants a token."""
    port, token = free_port(), secrets.token_hex(8)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": folder / "warehouse",
    }
    words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    program = HOME / "bin" / "spark-submit"
    secret = {"SPARK_CONNECT_AUTHENTICATE_TOKEN": token}
    with running(folder, secret, program, "--class", CONNECT, "--master", "local[2]", *words):
        answers(port)
        # By this name alone Spark sends a token without TLS.
        yield f"sc://localhost:{port}/;token={token}"
