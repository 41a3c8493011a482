"""Benchmarks the dashboard: its first page, a busy store in a browser, and what open tabs cost.

Command line: python -m bench.dashboard [--only load|busy|tabs] [--minutes N]. A busy store has
100,000 waiting messages and 500 events per second. Tabs are HTTP clients that ask as pages do,
because the browsers of operators do not run on the server's machine.
"""

import argparse
import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory, gettempdir
from time import monotonic
from typing import Any, TypeAlias

from playwright.sync_api import Browser, Page, sync_playwright

from bench.dashboard_tabs import open_tabs
from bench.figures import Figure, compare_values, summarise
from bench.http.serving import Served, serve_penstock
from bench.postgres import Postgres
from bench.references.sqlite_loops import sleep
from bench.table import HEADER, Target, format_json_line, format_line
from bench.usage import read_server_seconds
from penstock import stores
from penstock.broker.local import Broker
from penstock.model.message import Draft
from penstock.model.store_types import Completion
from tests.dashboard.conftest import ARGUMENTS

CHROMIUM = "/usr/bin/chromium"
WAITING, EVENTS_PER_SECOND = 100_000, 500
PUBLISH_BATCH, WORK_BATCH = 1_000, 25
LOADS, FILTERS, TABS, REPEATS, DRAINED = 5, 40, 20, 6, 120_000
# How long processor time is counted.
SLICE_S = 5.0
LONG_TASKS = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
}).observe({ type: "longtask", buffered: true });
"""
TRANSFERRED = """
() => performance.getEntriesByType("resource").concat(performance.getEntriesByType("navigation"))
  .filter((entry) => !entry.name.includes("/v1/"))
  .reduce((sum, entry) => sum + entry.encodedBodySize, 0)
"""
FETCH = """
async (filter) => {
  const began = performance.now();
  const query = new URLSearchParams({ filter, limit: "100", bodies: "false" });
  await (await fetch(`./v1/messages?${query}`)).text();
  return performance.now() - began;
}
"""
ASKED = (
    "state:ready", "state:ready queue:busy", "queue:waiting age>1s", "type:mail.send",
    "body.number:77", "state:completed queue:busy", "label.country:BR", "state:dead",
)  # fmt: skip
Measured: TypeAlias = tuple[Figure, Target | None]


async def fill(url: str, count: int) -> None:
    async with await stores.open(url) as store:
        broker = Broker(store)
        for queue in ("waiting", "busy"):
            await broker.admin.ensure_queue(queue)
        for first in range(0, count, PUBLISH_BATCH):
            await broker.publish_many(
                [make_draft("waiting", first + number) for number in range(PUBLISH_BATCH)]
            )


def run_apart(call: Callable[[str, int], Coroutine[object, object, None]], *given: Any) -> None:
    """Runs a coroutine in another thread: Playwright has an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(call(*given))).result()


def make_draft(queue: str, number: int) -> Draft:
    return Draft(queue=queue, type="mail.send", body=b'{"number":%d}' % (number % 1_000),
                 labels={"country": "BR" if number % 10 == 0 else "DE"})  # fmt: skip


async def keep_busy(url: str) -> None:
    """Publishes and completes until the process is stopped: two events for each message."""
    async with await stores.open(url) as store:
        broker = Broker(store)
        began, events = monotonic(), 0
        while True:
            await broker.publish_many([make_draft("busy", n) for n in range(WORK_BATCH)])
            claimed = await broker.claim("busy", limit=WORK_BATCH, consumer="bench")
            await broker.complete_many([Completion(m.id, m.fence) for m in claimed.messages])
            events += 2 * WORK_BATCH
            await asyncio.sleep(max(0.0, events / EVENTS_PER_SECOND - (monotonic() - began)))


@contextmanager
def run_worker(url: str) -> Iterator[None]:
    """Another process works on the store."""
    command = [sys.executable, "-m", "bench.dashboard", "--work", url]
    with subprocess.Popen(command) as worker:
        try:
            yield
        finally:
            worker.terminate()


def open_tab(browser: Browser, server: Served, path: str) -> Page:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.add_init_script(LONG_TASKS)
    page.goto(f"http://127.0.0.1:{server.port}/{path}")
    return page


def measure_load(browser: Browser, folder: Path) -> Iterator[Measured]:
    """The overview of a store with queues, by browsers that have nothing cached."""
    url = f"sqlite:///{folder}/load.db"
    run_apart(fill, url, PUBLISH_BATCH)
    times, sizes = [], []
    with serve_penstock(folder, url) as server:
        for _ in range(LOADS):
            began = monotonic()
            page = open_tab(browser, server, "#/overview")
            page.get_by_role("link", name="waiting", exact=True).wait_for()
            times.append(monotonic() - began)
            sizes.append(page.evaluate(TRANSFERRED) / 1_000)
            page.context.close()
    yield summarise("load size", "KB", sizes), Target("value", "<=", 60)
    yield summarise("load time", "s", times), Target("value", "<=", 1)


def read_heap(page: Page) -> float:
    """Returns the megabytes that are left after a collection."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"] / 1_000_000
    session.detach()
    return used


def measure_busy(browser: Browser, folder: Path, minutes: float) -> Iterator[Measured]:
    url = f"sqlite:///{folder}/busy.db"
    run_apart(fill, url, WAITING)
    with serve_penstock(folder, url) as server, run_worker(url):
        pages = [open_tab(browser, server, path) for path in ("#/overview", "#/messages")]
        pages[0].get_by_role("link", name="busy", exact=True).wait_for()
        pages[0].wait_for_timeout(10_000)
        # What it takes to start is measured as the first load.
        for page in pages:
            page.evaluate("window.longest = 0")
        before = [read_heap(page) for page in pages]
        answers = [pages[1].evaluate(FETCH, ASKED[n % len(ASKED)]) for n in range(FILTERS)]
        pages[0].wait_for_timeout(minutes * 60_000)
        longest = [page.evaluate("window.longest") for page in pages]
        after = [read_heap(page) for page in pages]
    yield summarise("overview task", "ms", longest[:1]), Target("value", "<=", 200)
    yield summarise("list task", "ms", longest[1:]), Target("value", "<=", 200)
    p95 = quantiles(answers, n=20)[-1]
    yield summarise("filter p95", "ms", [p95]), Target("value", "<=", 300)
    growth = [new / old for new, old in zip(after, before, strict=True)]
    yield summarise("heap growth", "", growth), Target("value", "<=", 1.2)


async def publish_and_drain(url: str) -> tuple[float, float]:
    """Returns messages per second of both."""
    async with await stores.open(url) as store:
        broker = Broker(store)
        await broker.admin.ensure_queue("drain")
        began = monotonic()
        for first in range(0, DRAINED, PUBLISH_BATCH):
            await broker.publish_many([make_draft("drain", first)] * PUBLISH_BATCH)
        published, done = monotonic() - began, 0
        began = monotonic()
        while taken := (await broker.claim("drain", limit=250, consumer="bench")).messages:
            await broker.complete_many([Completion(each.id, each.fence) for each in taken])
            done += len(taken)
        return DRAINED / published, done / (monotonic() - began)


def measure_tabs(name: str, url: str, folder: Path) -> Iterator[Measured]:
    """Alternates between no tab and twenty. The server runs in both cases."""
    alone, beside, cores = [], [], []
    with serve_penstock(folder, url) as server:

        def work_beside() -> None:
            with open_tabs(server.port, TABS):
                # Starting them takes a core for seconds.
                sleep(SLICE_S / 2)
                began, used = monotonic(), server.cpu
                beside.append(asyncio.run(publish_and_drain(url)))
                cores.append((server.cpu - used) / (monotonic() - began))

        for turn in range(REPEATS):
            # The store grows, so each side goes first in turn.
            if turn % 2:
                work_beside()
            alone.append(asyncio.run(publish_and_drain(url)))
            if not turn % 2:
                work_beside()
    for index, verb in enumerate(("publish", "drain")):
        sides = [[each[index] for each in side] for side in (alone, beside)]
        found = compare_values(f"{name} {verb}", "msg/s", *sides)
        yield found, Target("ratio", ">=", 0.95)
    yield summarise(f"{name} server", "cores", cores), None


def measure_tab_cost(
    name: str, url: str, folder: Path, read_database: Callable[[], float]
) -> Iterator[Measured]:
    """Measures by processor time what tabs cost a store under a fixed load.

    The tabs' own process takes turns on the same cores, which the rates of `measure_tabs` include.
    """
    run_apart(fill, url, WAITING)
    alone, beside = [], []
    with serve_penstock(folder, url) as server, run_worker(url):

        def count_share() -> float:
            """Returns the share of the machine that server and database take, in percent."""
            began, used = monotonic(), server.cpu + read_database()
            sleep(SLICE_S)
            cores = (server.cpu + read_database() - used) / (monotonic() - began)
            return 100 * cores / (os.cpu_count() or 1)

        for _ in range(REPEATS):
            alone.append(count_share())
            with open_tabs(server.port, TABS):
                sleep(SLICE_S / 2)
                beside.append(count_share())
    costs = [with_tabs - without for with_tabs, without in zip(beside, alone, strict=True)]
    yield summarise(f"{name} cost", "%", costs), Target("value", "<=", 5)


def measure_in_browser(folder: Path, only: str | None, minutes: float) -> Iterator[Measured]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        if only != "busy":
            yield from measure_load(browser, folder)
        if only != "load":
            yield from measure_busy(browser, folder, minutes)
        browser.close()


def measure(folder: Path, only: str | None, minutes: float) -> Iterator[Measured]:
    if only != "tabs":
        yield from measure_in_browser(folder, only, minutes)
    if only in (None, "tabs"):
        yield from measure_tabs("sqlite", f"sqlite:///{folder}/tabs.db", folder)
        yield from measure_tab_cost("sqlite", f"sqlite:///{folder}/cost.db", folder, lambda: 0.0)
        subject = Postgres(Path(gettempdir()))
        with subject.fresh() as url:
            yield from measure_tabs("postgres", url, folder)
        with subject.fresh() as url:
            postmaster = subject.server.postmaster
            yield from measure_tab_cost(
                "postgres", url, folder, lambda: read_server_seconds(postmaster)
            )


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench dashboard", description="Benchmark the dashboard.")
    parser.add_argument("--only", choices=("load", "busy", "tabs"), help="one measure")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long pages stay open")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        asyncio.run(keep_busy(asked.work))
        return
    if not asked.json:
        print(f"# load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", file=sys.stderr)
        print(HEADER)
    with TemporaryDirectory(prefix="penstock-bench-") as name:
        for figure, target in measure(Path(name), asked.only, asked.minutes):
            text = (
                format_json_line("dashboard", figure) if asked.json else format_line(figure, target)
            )
            print(text, flush=True)


if __name__ == "__main__":
    main()
