"""Takes the pictures of the tour: `python -m tests.dashboard.screenshots URL`.

Start `./dev run`, wait five minutes so that every chart has something to show, and give its URL.
"""

import json
import sys
from pathlib import Path
from urllib.request import urlopen

from playwright.sync_api import sync_playwright

from tests.dashboard.conftest import ARGUMENTS

PLACE = Path(__file__).resolve().parents[2] / "docs" / "tour"
SIZE = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
SETTLED_MS = 3_000


def find_dead(url: str) -> str:
    with urlopen(f"{url}/v1/messages?filter=state:dead&limit=3&bodies=false") as answer:
        found: str = json.load(answer)["messages"][-1]["id"]
    return found


def list_shots(dead: str) -> dict[str, tuple[str, str, dict[str, int]]]:
    return {
        "overview-light": ("#/overview", "light", SIZE),
        "overview-dark": ("#/overview", "dark", SIZE),
        "messages-light": (f"#/messages?filter=state:dead&id={dead}", "light", SIZE),
        "messages-dark": (f"#/messages?filter=state:dead&id={dead}", "dark", SIZE),
        "message-light": (f"#/message/{dead}", "light", SIZE),
        "message-dark": (f"#/message/{dead}", "dark", SIZE),
        "failures-light": ("#/failures?hours=1", "light", SIZE),
        "queue-light": ("#/queues/mail", "light", SIZE),
        "queue-dark": ("#/queues/mail", "dark", SIZE),
        "inbox-light": ("#/inbox", "light", SIZE),
        "workflow-dark": ("#/workflows", "dark", SIZE),
        "overview-phone": ("#/overview", "light", PHONE),
    }


def main(url: str, chromium: str = "/usr/bin/chromium") -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        for name, (path, theme, size) in list_shots(find_dead(url)).items():
            page = browser.new_page(
                viewport={"width": size["width"], "height": size["height"]},
                color_scheme="dark" if theme == "dark" else "light",
            )
            page.goto(f"{url}/{path}")
            page.wait_for_timeout(SETTLED_MS)
            page.screenshot(path=PLACE / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"))
