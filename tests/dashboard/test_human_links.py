"""Links of human steps in a real browser: only a click decides."""

from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import OpenPage
from tests.http.served import Served

SUBMIT_WITHOUT_CLICK = """
() => fetch(location.href, {method: "POST", body: new URLSearchParams({choice: "approve"})})
    .then((reply) => reply.status, () => "refused")
"""
PRELOAD = """
(address) => {
    for (const kind of ["prefetch", "prerender", "preload"]) {
        const link = document.createElement("link");
        Object.assign(link, {rel: kind, href: address, as: "document"});
        document.head.append(link);
    }
    const settled = (element) => new Promise((resolve) => {
        element.onload = element.onerror = () => resolve(null);
        element.src = address;
    });
    const frame = document.createElement("iframe");
    document.body.append(frame);
    return Promise.allSettled([
        fetch(address), fetch(address, {method: "HEAD"}), settled(frame), settled(new Image()),
    ]).then(() => null);
}
"""


@pytest.fixture
def step(busy: Served) -> str:
    made = busy.post("/v1/inbox", {"spec": {"title": "Ship?", "assign": {"users": ["ann"]}}})
    return str(made.json["id"])


@pytest.fixture
def link(busy: Served, step: str) -> str:
    made = busy.post(f"/v1/inbox/{step}/links", {"person": "ann"})
    return str(urlsplit(made.json["url"]).path).removeprefix("/")


def is_open(server: Served, step: str) -> bool:
    return bool(server.get(f"/v1/inbox/{step}").json["state"] == "scheduled")


def look_around(page: Page) -> None:
    """Does what a scanner does that runs scripts, moves and scrolls, and clicks nothing."""
    page.wait_for_load_state("networkidle")
    page.mouse.move(100, 100)
    page.mouse.wheel(0, 500)
    page.evaluate("() => document.body.innerText")
    page.screenshot()
    page.reload()
    page.wait_for_load_state("networkidle")


def test_a_browser_that_runs_scripts_but_does_not_click_decides_nothing(
    busy: Served, open_page: OpenPage, step: str, link: str
) -> None:
    page = open_page(busy, link, strict=False)
    expect(page.get_by_role("button", name="Approve")).to_be_visible()
    look_around(page)
    assert page.evaluate(SUBMIT_WITHOUT_CLICK) in (403, "refused")
    assert is_open(busy, step)
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Decided: Approve, by ann")).to_be_visible()
    assert not is_open(busy, step)


def test_a_page_that_preloads_or_frames_a_link_decides_nothing(
    busy: Served, open_page: OpenPage, step: str, link: str
) -> None:
    page = open_page(busy, "healthz", strict=False)
    page.evaluate(PRELOAD, f"http://127.0.0.1:{busy.port}/{link}")
    assert is_open(busy, step)
