"""Command line: python -m bench.http [sqlite | postgres].

One server process, 64 connections and one client process. Echo and verbs run in turn.
"""

import argparse
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from bench import page
from bench.__main__ import make_directory
from bench.figures import Figure, compare_values
from bench.http import batches, waiting
from bench.http.asking import Next, make_request, measure_rate, repeat_request, time_requests
from bench.http.bodies import PUBLISH
from bench.http.serving import Served, serve_echo, serve_penstock
from bench.table import HEADER, format_line
from bench.targets import TARGETS
from tests.servers.postgres import Postgres

TERMS = (
    "One server process with default settings, 64 connections, bodies of 195 bytes. The reference"
    " is a bare uvicorn that echoes the body. Batches of 100 are compared with the same verbs in"
    " one process. Values are medians."
)
CLAIM = make_request("/v1/claim", b'{"queues":[{"queue":"default"}]}')


def claim_then_complete(answer: bytes) -> bytes:
    _, found, rest = answer.partition(b'"token":"')
    if not found:
        return CLAIM
    return make_request("/v1/complete", b'{"token":"' + rest.partition(b'"')[0] + b'"}')


async def measure_figures(
    url: str, idle_url: str, folder: Path, given: argparse.Namespace
) -> AsyncIterator[Figure]:
    """`idle_url` is a store without history, whose agents have nothing to count."""
    with serve_echo(folder) as raw, serve_penstock(folder, url) as server:
        for name, next in (
            ("publish", repeat_request("/v1/publish", PUBLISH)),
            ("claim_complete", claim_then_complete),
        ):
            for figure in await measure_beside_echo(name, raw, server, next, given):
                yield figure
    for figure in await measure_batches(url, folder, given):
        yield figure
    with serve_penstock(folder, idle_url) as server, serve_penstock(folder, idle_url) as calm:
        for figure in await waiting.measure_figures(server, calm):
            yield figure


async def measure_beside_echo(
    name: str, raw: Served, server: Served, next: Next, given: argparse.Namespace
) -> list[Figure]:
    echoes, ours = [], []
    for _ in range(given.repeats):
        echoes.append(await measure_rate(raw, repeat_request("/", PUBLISH), given.seconds))
        ours.append(await measure_rate(server, next, given.seconds))
    return [
        compare_values(name, "req/s", [run.rate for run in echoes], [run.rate for run in ours]),
        compare_values(
            f"{name}_cpu_us", "us", [run.cpu for run in echoes], [run.cpu for run in ours]
        ),
    ]


async def measure_batches(url: str, folder: Path, given: argparse.Namespace) -> list[Figure]:
    with serve_penstock(folder, url) as server:
        # Drains what the single publishes left.
        await time_requests(server, batches.consuming, batches.CALLERS)
        return await batches.measure_figures(server, url, given.messages, given.repeats)


@contextmanager
def open_stores(name: str, folder: str) -> Iterator[tuple[str, str]]:
    if name == "sqlite":
        yield f"sqlite:///{folder}/queue.db", f"sqlite:///{folder}/idle.db"
    else:
        with (
            Postgres({}, parent=None) as postgres,
            postgres.database() as url,
            postgres.database() as idle_url,
        ):
            yield url, idle_url


async def bench(url: str, idle_url: str, folder: Path, given: argparse.Namespace) -> None:
    subject = f"http-{given.store}"
    print(f"{TERMS}\n\n{HEADER}")
    seen: list[Figure] = []
    async for figure in measure_figures(url, idle_url, folder, given):
        print(format_line(figure, TARGETS[subject].get(figure.measure)), flush=True)
        seen.append(figure)
    if given.page:
        page.keep(subject, TERMS, seen, [])


def main() -> None:
    parser = argparse.ArgumentParser("./dev bench http", description="Benchmark the HTTP service.")
    parser.add_argument("store", nargs="?", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seconds", type=float, default=1.0, help="seconds per run")
    parser.add_argument("--repeats", type=int, default=20, help="number of runs")
    parser.add_argument("--messages", type=int, default=10_000, help="messages per batch run")
    parser.add_argument(
        "--page", action="store_true", help="write the results to docs/benchmarks.md"
    )
    given = parser.parse_args()
    with (
        TemporaryDirectory(dir=make_directory()) as folder,
        open_stores(given.store, folder) as urls,
    ):
        uvloop.run(bench(*urls, Path(folder), given))


if __name__ == "__main__":
    main()
