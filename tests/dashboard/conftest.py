"""A real browser, and servers with messages of every kind."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.dashboard.scenery import furnish
from tests.http.keys import serve_with_auth
from tests.http.served import SENDING, Served, served
from tests.servers.places import memory

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip
PATIENCE_MS = 20_000
OpenPage: TypeAlias = Callable[..., Page]


# For a module: while it runs, Playwright has an event loop, and other tests need one of their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        refuse = pytest.fail if os.environ.get("CI") else pytest.skip
        refuse("chromium is not installed; ./dev test installs it")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="penstock-", dir=memory()) as name:
        yield Path(name)


@pytest.fixture(scope="package")
def server(folder: Path) -> Iterator[Served]:
    with served(f"sqlite:///{folder}/furnished.db", folder) as running:
        furnish(running)
        yield running


@pytest.fixture(scope="package")
def busy(folder: Path) -> Iterator[Served]:
    """A server whose tests make what they need."""
    with served(
        f"sqlite:///{folder}/busy.db", folder, *SENDING, "--environment", "staging"
    ) as running:
        yield running


@pytest.fixture(scope="package")
def locked(folder: Path) -> Iterator[Served]:
    """A server that asks for keys. Its own may do everything."""
    with serve_with_auth(f"sqlite:///{folder}/locked.db", folder) as running:
        yield running


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens a page of a server. An error on it, or a breach of its policy, fails the test."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def open_one(
        server: Served,
        path: str = "",
        *,
        theme: str = "light",
        size: tuple[int, int] = (1600, 1120),
        strict: bool = True,
    ) -> Page:
        context = browser.new_context(
            color_scheme="dark" if theme == "dark" else "light",
            viewport={"width": size[0], "height": size[1]},
            permissions=["clipboard-read", "clipboard-write"],
        )
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        if strict:
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("console", lambda said: note(said.type, said.text))
            page.on("response", lambda reply: note_wrong(reply.status, reply.url))
            page.on("dialog", lambda dialog: problems.append(f"dialog {dialog.message}"))
        page.goto(f"http://127.0.0.1:{server.port}{server.prefix}/{path}")
        return page

    def note(kind: str, text: str) -> None:
        if kind == "error" and "Failed to load resource" not in text:
            problems.append(text)

    def note_wrong(status: int, url: str) -> None:
        """A page that is left must not ask for a thing without a name."""
        if status >= 400 and re.search(r"/(messages|queues|trace)/(/|\?|$)", url):
            problems.append(f"{status} {url}")

    yield open_one
    for context in contexts:
        with suppress(Exception):
            context.close()
    assert problems == []
