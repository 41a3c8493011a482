"""Every page in a browser, in both themes and on a phone, with axe."""

from collections.abc import Sequence

import pytest
from axe_playwright_python.base import AxeResults
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import PATIENCE_MS, OpenPage
from tests.http.served import Served

PAGES = {
    "#/overview": "messages died in the last 5 minutes",
    "#/queues": "thumbnails",
    "#/queues/mail": "Longest delay",
    "#/messages?filter=state:dead": "TimeoutError: no answer",
    "#/failures": "TimeoutError: no answer from host-<n>",
    "#/workers": "k2f8a1q",
    "#/schedules": "on weekdays at 09:00",
    "#/inbox": "Refund 612.40",
    "#/workflows": "nightly-close",
    "#/rules": "large-orders",
    "#/schemas": "mail-body",
    "#/bulk": "No bulk action yet",
    "#/anomalies": "moved to dead letters",
    "#/access": "No API key yet",
    "#/audit": "Pause a queue",
    "#/agents": "audit_sealer",
    "#/analytics": "No results of the pipeline yet",
    "#/rules?rule=large-orders": "of 8 messages match",
    "#/schemas?schema=mail-body": "Check compatibility",
}
PHONE = (390, 844)


EVERY_RULE = ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]
# The rules whose answer depends on the theme: the elements of a page do not.
THEMED_RULES = ["color-contrast", "link-in-text-block"]


AXE = Axe()


def check_accessible(page: Page, rules: Sequence[str] = EVERY_RULE) -> None:
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.axe_script)
    options = {"runOnly": list(rules), "resultTypes": ["violations"]}
    found = AxeResults(page.evaluate("options => axe.run(document, options)", options))
    assert found.violations_count == 0, found.generate_report()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_shows_its_content_and_is_accessible(
    server: Served, open_page: OpenPage, theme: str
) -> None:
    page = open_page(server, theme=theme)
    for path, text in PAGES.items():
        page.goto(f"http://127.0.0.1:{server.port}/{path}")
        expect(page.get_by_text(text).first).to_be_visible()
        assert page.evaluate("document.documentElement.dataset.theme") == theme
        check_accessible(page, EVERY_RULE if theme == "light" else THEMED_RULES)


def test_the_page_of_a_message_shows_all_about_it(server: Served, open_page: OpenPage) -> None:
    found = server.get("/v1/messages", filter="state:dead queue:mail", limit=1)
    (message,) = found.json["messages"]
    page = open_page(server, f"#/message/{message['id']}")
    expect(page.get_by_text(f"Why did {message['id']} end?")).to_be_visible()
    page.get_by_text("Traceback").click()
    expect(page.get_by_text('File "mail/smtp.py", line 88')).to_be_visible()
    expect(page.get_by_text('"ada@example.org"')).to_be_visible()
    expect(page.get_by_role("heading", name="Body")).to_contain_text("schema mail-body@1")
    expect(page.get_by_role("button", name="Cancel")).to_have_attribute("aria-disabled", "true")
    check_accessible(page)


def test_the_menu_counts_causes_of_failure_and_not_messages(
    server: Served, open_page: OpenPage
) -> None:
    page = open_page(server)
    menu = page.get_by_role("navigation", name="Main")
    expect(menu.get_by_role("link", name="Failures")).to_contain_text("2")
    page.goto(f"http://127.0.0.1:{server.port}/#/failures")
    page.get_by_role("article").first.get_by_role("button", name="Mute").click()
    expect(menu.get_by_role("link", name="Failures")).to_contain_text("1")


@pytest.mark.parametrize("path", ["#/overview", "#/failures", "#/messages?filter=state:dead"])
def test_a_phone_shows_pages_without_scrolling_sideways(
    server: Served, open_page: OpenPage, path: str
) -> None:
    page = open_page(server, path, size=PHONE)
    expect(page.get_by_text(PAGES[path]).first).to_be_attached()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name="Workers").click()
    expect(page.get_by_text("k2f8a1q")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_the_theme_follows_the_system_until_one_is_chosen(
    server: Served, open_page: OpenPage
) -> None:
    page = open_page(server, theme="light")
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.get_by_role("button", name="Theme").click()
    page.emulate_media(color_scheme="light")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_the_theme_is_kept(server: Served, open_page: OpenPage) -> None:
    page = open_page(server, theme="light")
    page.get_by_role("button", name="Theme").click()
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_api_explorer_works_without_other_servers(server: Served, open_page: OpenPage) -> None:
    page = open_page(server, "healthz", strict=False)
    foreign: list[str] = []
    page.on("request", lambda request: foreign.append(request.url))
    page.goto(f"http://127.0.0.1:{server.port}/docs")
    # It draws the whole API at once.
    heading = page.get_by_role("heading", name="Publish a message").first
    expect(heading).to_be_visible(timeout=10 * PATIENCE_MS)
    here = f"http://127.0.0.1:{server.port}/"
    assert [url for url in foreign if not url.startswith((here, "data:", "blob:"))] == []


def test_an_unknown_address_says_so(server: Served, open_page: OpenPage) -> None:
    page = open_page(server, "#/nowhere")
    expect(page.get_by_text("There is no page at this address")).to_be_visible()
    page.goto(f"http://127.0.0.1:{server.port}/#/message/999999")
    expect(page.get_by_role("alert").first).to_contain_text("999999")
