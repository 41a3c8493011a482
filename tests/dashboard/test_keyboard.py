"""Shortcuts of pages other than the list of messages."""

import re

from playwright.sync_api import expect

from tests.dashboard.conftest import OpenPage
from tests.dashboard.scenery import make_dead
from tests.http.served import Served


def test_a_group_of_failures_is_chosen_and_redriven_by_keyboard(
    busy: Served, open_page: OpenPage
) -> None:
    queue = busy.queue()
    make_dead(busy, queue, "ValueError: no")
    chosen = [make_dead(busy, queue, "KeyError: total") for _ in range(2)]
    page = open_page(busy, f"#/failures?queue={queue}")
    groups = page.get_by_role("article")
    expect(groups).to_have_count(2)
    place = 1 if groups.nth(1).get_by_text("KeyError").count() else 0
    for _ in range(place + 1):
        page.keyboard.press("j")
    page.keyboard.press("r")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("KeyError: total")
    dialog.get_by_role("button", name="Redrive 2").press("Enter")
    expect(page.get_by_text("Redrive: 2 messages done.")).to_be_visible()
    assert {busy.state(id) for id in chosen} == {"ready"}


def test_rows_are_walked_and_opened_by_keyboard(server: Served, open_page: OpenPage) -> None:
    page = open_page(server, "#/queues")
    rows = page.get_by_role("row")
    expect(rows.nth(2)).to_be_visible()
    page.keyboard.press("j")
    expect(rows.nth(1).get_by_role("link").first).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("k")
    name = rows.nth(1).get_by_role("link").first.inner_text()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"#/queues/{name}$"))


def test_escape_closes_what_a_page_has_opened(server: Served, open_page: OpenPage) -> None:
    page = open_page(server, "#/rules?rule=large-orders")
    expect(page.get_by_role("heading", name="Edit large-orders")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="Edit large-orders")).to_have_count(0)
    page.goto(re.sub("#.*", "#/failures?queue=mail", page.url))
    expect(page.get_by_role("button", name="Show all queues")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Show all queues")).to_have_count(0)
