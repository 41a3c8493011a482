"""Takes the pictures of the tour: `python -m tests.dashboard.screenshots [URL]`.

Without a URL it starts the shop of `./dev run` on a file with an hour of history.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal
from urllib.parse import urlencode
from urllib.request import urlopen

from playwright.sync_api import Browser, Page, sync_playwright

from tests.dashboard.conftest import ARGUMENTS

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "docs" / "tour"
SIZE = {"width": 1440, "height": 900}
# That of the mocks.
LARGE = {"width": 1600, "height": 1120}
PHONE = {"width": 390, "height": 844}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SETTLED_MS = 6_000
# By then the last five minutes are those of real workers.
LIVE_S = 320


@contextmanager
def run_shop() -> Iterator[str]:
    """Runs it on a new file, and returns its address."""
    with TemporaryDirectory(prefix="penstock-tour-") as folder:
        file = f"{folder}/penstock.db"
        subprocess.run([sys.executable, "-m", "tests.dashboard.past_hour", file], check=True)
        command = [sys.executable, str(ROOT / "examples" / "live.py"), file]
        environment = {**os.environ, "PENSTOCK_ENVIRONMENT": "production"}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            found = re.search(r"http://[\d.:]+", process.stdout.readline())
            assert found is not None
            with suppress(subprocess.TimeoutExpired):
                process.wait(LIVE_S)
            try:
                yield found[0]
            finally:
                process.terminate()
                process.communicate()


def find_message(url: str, filter: str) -> str:
    """Returns the oldest of the last messages that match."""
    query = urlencode({"filter": filter, "limit": 3, "bodies": "false"})
    with urlopen(f"{url}/v1/messages?{query}") as answer:
        found: str = json.load(answer)["messages"][-1]["id"]
    return found


def list_shots(url: str) -> dict[str, tuple[str, dict[str, int]]]:
    """Returns address and size by name. Each is taken in both themes."""
    dead = find_message(url, "state:dead queue:webhooks")
    waiting = find_message(url, "queue:refunds state:scheduled")
    return {
        "overview": ("#/overview", LARGE),
        "messages": (f"#/messages?filter=state:dead+queue:webhooks&id={dead}", LARGE),
        "message": (f"#/message/{waiting}", LARGE),
        "failures": ("#/failures?hours=1", SIZE),
        "queue": ("#/queues/webhooks", SIZE),
        "inbox": ("#/inbox", SIZE),
        "workflow": ("#/workflows", SIZE),
        "rules": ("#/rules?rule=large-orders", SIZE),
        "analytics": ("#/analytics", SIZE),
        "overview-phone": ("#/overview", PHONE),
        "message-phone": (f"#/message/{waiting}", PHONE),
    }


def main(url: str, chromium: str = "/usr/bin/chromium") -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for name, (path, size) in list_shots(url).items():
            for theme in THEMES:
                take(browser, f"{url}/{path}", f"{name}-{theme}", size)
        browser.close()


def take(browser: Browser, address: str, name: str, size: dict[str, int]) -> None:
    page = browser.new_page(
        viewport={"width": size["width"], "height": size["height"]},
        color_scheme="dark" if name.endswith("dark") else "light",
    )
    page.goto(address)
    page.wait_for_timeout(SETTLED_MS)
    if name.startswith("messages"):
        select_and_complete(page)
    page.screenshot(path=PLACE / f"{name}.png")
    page.close()


def select_and_complete(page: Page) -> None:
    """Selects a few messages and begins a filter, to show the bulk bar and the completion."""
    boxes = page.get_by_role("checkbox", name=re.compile("^Select message"))
    boxes.nth(1).click()
    boxes.nth(4).click(modifiers=["Shift"])
    page.get_by_role("combobox").click()
    page.keyboard.press("End")
    page.keyboard.type(" lab")
    page.get_by_role("option").first.wait_for()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1].rstrip("/"))
    else:
        with run_shop() as url:
            main(url)
