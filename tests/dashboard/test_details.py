"""Selections, copied commands, masked fields, and pages and dialogs that no other test checks."""

import json
import re
import shlex
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.cli.terminal import until
from tests.dashboard.conftest import OpenPage
from tests.dashboard.scenery import make_dead
from tests.dashboard.test_pages import PHONE, THEMED_RULES, check_accessible
from tests.http.keys import keyed
from tests.http.served import Served


def import_messages(server: Served, queue: str, number: int) -> None:
    lines = "\n".join(json.dumps({"body": {"n": n}}) for n in range(number))
    assert server.post(f"/v1/queues/{queue}/import", lines.encode()).status == 200


def test_a_number_above_a_thousand_is_typed_before_messages_are_cancelled(
    busy: Served, open_page: OpenPage
) -> None:
    queue = busy.queue()
    import_messages(busy, queue, 1_001)
    page = open_page(busy, f"#/messages?filter=state:ready queue:{queue}")
    expect(page.get_by_text("1,001 match")).to_be_visible()
    page.keyboard.press("a")
    page.keyboard.press("c")
    dialog = page.get_by_role("dialog")
    cancel = dialog.get_by_role("button", name="Cancel 1,001")
    expect(cancel).to_have_attribute("title", "Type 1,001 to go on.")
    check_accessible(page)
    dialog.get_by_label("Type 1,001 to go on").fill("1,001")
    cancel.click()
    until(lambda: busy.get("/v1/messages/count", filter=f"queue:{queue} state:cancelled")
          .json["count"] == 1_001)  # fmt: skip


def test_a_range_is_selected_with_shift(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    import_messages(busy, queue, 6)
    page = open_page(busy, f"#/messages?filter=queue:{queue}")
    boxes = page.get_by_role("checkbox", name=re.compile("^Select message"))
    expect(boxes).to_have_count(6)
    boxes.nth(1).click()
    boxes.nth(4).click(modifiers=["Shift"])
    expect(page.get_by_text("4 selected")).to_be_visible()


def test_a_queue_is_found_among_all_when_messages_are_moved(
    busy: Served, open_page: OpenPage
) -> None:
    queue, target = busy.queue(), busy.queue()
    id = make_dead(busy, queue, "ValueError: no")
    page = open_page(busy, f"#/messages?filter=state:dead queue:{queue}")
    expect(page.get_by_role("row").filter(has_text=id)).to_have_count(1)
    page.keyboard.press("a")
    page.get_by_role("button", name="Move…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("To queue").fill(target[:-1])
    move = dialog.get_by_role("button", name="Move")
    expect(move).to_have_attribute("title", "No queue is called that.")
    dialog.get_by_label("To queue").fill(target)
    dialog.get_by_role("button", name="Move 1").click()
    expect(page.get_by_text("Move: 1 message done.")).to_be_visible()
    assert len(busy.get("/v1/messages", filter=f"queue:{target}").json["messages"]) == 1


def test_a_filter_is_copied_as_commands(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    id = busy.publish(queue, {"name": "it's"})
    filter = f"queue:{queue} body.name:it's"
    page = open_page(busy, f"#/messages?filter={filter}")
    expect(page.get_by_role("row").filter(has_text=id)).to_have_count(1)
    page.get_by_role("button", name="Copy as CLI").click()
    command = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    assert command == ["penstock", "list", "--filter", filter]
    page.get_by_role("button", name="curl", exact=True).click()
    *_, url = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    asked = parse_qs(urlsplit(url).query)
    found = busy.get("/v1/messages", filter=asked["filter"][0], limit=asked["limit"][0]).json
    assert [each["id"] for each in found["messages"]] == [id]


def test_a_workflow_is_redriven_from_its_failed_node(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue(max_attempts=1)
    nodes = [{"message": {"queue": queue, "type": "collect"}, "label": "collect"},
             {"message": {"queue": queue, "type": "close"}, "after": [0]}]  # fmt: skip
    id = busy.post("/v1/workflows", {"name": "close", "nodes": nodes}).json["id"]
    (message,) = busy.claim(queue)
    busy.post("/v1/reject", {"token": message["token"], "error": "ValueError: no"})
    page = open_page(busy, f"#/workflows?id={id}")
    row = page.get_by_role("row").filter(has_text=id)
    expect(row.locator("a.bad")).to_have_text("1")
    page.get_by_role("button", name="Redrive from failed nodes").click()
    expect(page.get_by_text("are ready again").or_(page.get_by_text("is ready again"))
           ).to_be_visible()  # fmt: skip
    assert busy.state(message["id"]) == "ready"


def test_masked_fields_are_hidden_without_the_right_to_reveal(
    locked: Served, open_page: OpenPage
) -> None:
    queue = locked.queue(mask=["body.card"])
    id = locked.publish(queue, {"card": "4111-secret", "order": 7})
    page = open_page(locked, f"#/message/{id}")
    page.get_by_label("API key or token").fill(keyed(locked, "viewer").key or "")
    check_accessible(page)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text('"order"')).to_be_visible()
    assert "4111-secret" not in page.content()


def test_the_page_of_a_message_fits_a_phone(server: Served, open_page: OpenPage) -> None:
    found = server.get("/v1/messages", filter="state:dead queue:mail", limit=1)
    page = open_page(server, f"#/message/{found.json['messages'][0]['id']}", size=PHONE)
    expect(page.get_by_role("heading", name="Body")).to_be_attached()
    expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0]


def test_pages_of_one_thing_are_accessible_in_the_dark(busy: Served, open_page: OpenPage) -> None:
    topic = busy.queue(kind="broadcast")
    path = f"/v1/queues/{topic}/subscriptions/audit"
    assert busy.put(path, {}).status in (200, 201)
    queue = busy.queue(max_attempts=1)
    id = busy.publish(queue, {"n": 1}, correlation_id="order-1")
    (message,) = busy.claim(queue)
    busy.post("/v1/reject", {"token": message["token"], "error": "ValueError: no"})
    page = open_page(busy, f"#/message/{id}", theme="dark")
    expect(page.get_by_text("ValueError: no").first).to_be_visible()
    check_accessible(page, THEMED_RULES)
    page.goto(re.sub("#.*", "#/trace/order-1", page.url))
    expect(page.get_by_role("link", name=id, exact=True).first).to_be_visible()
    check_accessible(page)
    page.goto(re.sub("#.*", f"#/queues/{topic}%2Faudit", page.url))
    expect(page.get_by_role("heading", name="Filter").or_(page.get_by_text("audit").first).first
           ).to_be_visible()  # fmt: skip
    check_accessible(page)


def open_help(page: Page) -> None:
    page.keyboard.press("?")


def open_palette(page: Page) -> None:
    page.keyboard.press("Control+k")


def open_new_queue(page: Page) -> None:
    page.get_by_role("button", name="New queue").click()


@pytest.mark.parametrize("open_dialog", [open_help, open_palette, open_new_queue])
def test_dialogs_are_accessible(
    server: Served, open_page: OpenPage, open_dialog: Callable[[Page], None]
) -> None:
    page = open_page(server, "#/queues")
    expect(page.get_by_role("link", name="thumbnails")).to_be_visible()
    open_dialog(page)
    expect(page.get_by_role("dialog")).to_be_visible()
    check_accessible(page)
