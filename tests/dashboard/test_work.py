"""What operators do on the dashboard, by mouse and by keyboard alone."""

import json
import re
import shlex
from base64 import b64encode
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.cli.terminal import until
from tests.dashboard.conftest import OpenPage
from tests.dashboard.scenery import make_dead
from tests.http.keys import keyed
from tests.http.served import Served, served
from tests.servers.postgres import Postgres


class Text(str):
    """JSON that is nested too deep for json.dumps."""


HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


def test_new_messages_wait_until_they_are_asked_for(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    first = busy.publish(queue)
    page = open_page(busy, f"#/messages?filter=queue:{queue}")
    expect(page.get_by_role("link", name=first, exact=True)).to_be_visible()
    second = busy.publish(queue)
    expect(page.get_by_role("button", name="1 new")).to_be_visible()
    expect(page.get_by_role("link", name=second, exact=True)).to_have_count(0)
    page.keyboard.press(".")
    expect(page.get_by_role("link", name=second, exact=True)).to_be_visible()


def test_the_overview_follows_what_happens_and_pauses(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    page = open_page(busy)
    expect(page.get_by_role("button", name="Live")).to_be_visible()
    expect(page.get_by_text("staging", exact=True)).to_be_visible()
    busy.publish(queue)
    row = page.get_by_role("row").filter(has_text=queue)
    expect(row.get_by_role("cell").nth(2)).to_have_text("1")
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Paused")).to_be_visible()
    busy.publish(queue)
    page.keyboard.press("p")
    expect(row.get_by_role("cell").nth(2)).to_have_text("2")


def test_dead_letters_are_redriven_by_keyboard_alone(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    ids = [make_dead(busy, queue, "ValueError: no") for _ in range(3)]
    page = open_page(busy)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.keyboard.press("g")
    page.keyboard.press("d")
    # The heading is there before the code of the page.
    expect(page.get_by_role("row").filter(has_text=queue)).to_have_count(3)
    page.keyboard.press("/")
    expect(page.get_by_role("combobox")).to_be_focused()
    page.keyboard.press("End")
    page.keyboard.type(f" queue:{queue}")
    page.keyboard.press("Enter")
    expect(page.get_by_text("3 match")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    inspector = page.get_by_role("complementary")
    expect(inspector.get_by_text("ValueError: no").first).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    expect(page.get_by_text("3 selected")).to_be_visible()
    page.keyboard.press("r")
    expect(page.get_by_role("button", name="Redrive 3").last).to_be_visible()
    page.keyboard.press("Tab")
    page.get_by_role("dialog").get_by_role("button", name="Redrive 3").press("Enter")
    expect(page.get_by_text("Redrive: 3 messages done.")).to_be_visible()
    assert {busy.state(id) for id in ids} == {"ready"}


def test_messages_that_are_not_loaded_are_counted_too(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    lines = [json.dumps({"body": {"n": n}}) for n in range(130)]
    assert busy.post(f"/v1/queues/{queue}/import", "\n".join(lines).encode()).status == 200
    page = open_page(busy, f"#/messages?filter=state:ready queue:{queue}")
    expect(page.get_by_text("130 match")).to_be_visible()
    page.keyboard.press("a")
    bar = page.get_by_role("toolbar", name="Selected messages")
    expect(bar.get_by_role("button", name="Cancel 130")).to_be_visible()
    page.goto(re.sub("#.*", f"#/messages?filter=state:ready queue:{queue} body.n<120", page.url))
    expect(page.get_by_text("120 match")).to_be_visible()


def test_dead_letters_of_all_queues_are_listed_the_last_dead_first(
    busy: Served, open_page: OpenPage
) -> None:
    queues = [busy.queue(), busy.queue()]
    ids = [make_dead(busy, queues[n % 2], "ValueError: in turn") for n in range(4)]
    page = open_page(busy, f"#/messages?filter=state:dead queue:{','.join(queues)}")
    rows = page.get_by_role("row").filter(has_text="ValueError: in turn")
    expect(rows).to_have_count(4)
    shown = page.get_by_role("row").get_by_role("link").all_inner_texts()
    assert shown == ids[::-1]


def test_a_dead_letter_leads_to_those_that_failed_like_it(
    busy: Served, open_page: OpenPage
) -> None:
    queue = busy.queue()
    for number in range(3):
        make_dead(busy, queue, f"TimeoutError: host-{number}")
    make_dead(busy, queue, "KeyError: total")
    page = open_page(busy, f"#/messages?filter=state:dead queue:{queue}")
    expect(page.get_by_text("4 match")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(" err")
    options = page.get_by_role("option").filter(has_text="error.kind:")
    expect(options.nth(1)).to_have_text("error.kind:TimeoutError3")
    expect(options.nth(2)).to_have_text("error.kind:KeyError1")
    options.nth(1).click()
    page.keyboard.press("Enter")
    expect(page.get_by_text("3 match")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("e")
    inspector = page.get_by_role("complementary")
    expect(inspector.get_by_text("Why did")).to_be_visible()
    expect(inspector.get_by_text("3 messages failed like this since")).to_be_visible()
    inspector.get_by_role("link", name="Open the group").click()
    expect(page.get_by_role("article")).to_have_count(1)
    page.get_by_role("button", name="Show all causes").click()
    expect(page.get_by_role("article")).to_have_count(2)


def test_a_group_of_failures_is_redriven(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    ids = [make_dead(busy, queue, f"TimeoutError: host-{number}") for number in range(3)]
    other = make_dead(busy, queue, "KeyError: total")
    page = open_page(busy, f"#/failures?queue={queue}")
    group = page.get_by_role("article").filter(has_text="TimeoutError: host-<n>")
    group.get_by_role("button", name="Redrive").click()
    page.get_by_label("At most per second").fill("50")
    page.get_by_role("button", name="Redrive 3").click()
    expect(page.get_by_text("Redrive: 3 messages done.")).to_be_visible()
    assert {busy.state(id) for id in ids} == {"ready"}
    assert busy.state(other) == "dead"


def test_a_message_is_edited_and_sent_again_without_touching_its_numbers(
    busy: Served, open_page: OpenPage
) -> None:
    queue = busy.queue()
    raw = b'{"queue": "%s", "body": {"big": 12345678901234567890, "price": 1.10}}' % queue.encode()
    id = busy.post("/v1/publish", raw).json["id"]
    (message,) = busy.claim(queue)
    busy.post("/v1/reject", {"token": message["token"], "error": "no"})
    page = open_page(busy, f"#/message/{id}")
    expect(page.get_by_text("12345678901234567890")).to_be_visible()
    expect(page.get_by_text("1.10", exact=True)).to_be_visible()
    page.get_by_role("button", name="Edit and resend").click()
    body = page.get_by_role("textbox", name="Body (JSON)")
    body.fill(body.input_value().replace("1.10", "2.20"))
    page.get_by_role("button", name="Send the new message").click()
    expect(page.get_by_text("Sent as message")).to_be_visible()
    (found,) = busy.get("/v1/messages", filter=f"queue:{queue} state:ready").json["messages"]
    reply = busy.get(f"/v1/messages/{found['id']}").body
    assert b"12345678901234567890" in reply
    assert b"2.20" in reply


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ({"html": HOSTILE}, HOSTILE),
        (HOSTILE, HOSTILE),
        ({"rtl": "\u202e gnp.exe", "emoji": "👩🏽‍🚀"}, "gnp.exe"),
        ({"large": "x" * 1_000_000}, "Only the first 64.0 KB are shown"),
        (Text("[" * 900 + "1" + "]" * 900), "…"),
    ],
    ids=["html", "text", "direction", "large", "deep"],
)
def test_a_hostile_body_is_only_text(
    busy: Served, open_page: OpenPage, body: object, shown: str
) -> None:
    given: dict[str, object] = {"body": body}
    if isinstance(body, Text):
        encoded = b64encode(body.encode()).decode()
        given = {"body_base64": encoded, "content_type": "application/json"}
    sent = {"queue": busy.queue(), "headers": {"x": HOSTILE[:100]}, **given}
    id = busy.post("/v1/publish", sent).json["id"]
    page = open_page(busy, f"#/message/{id}")
    expect(page.get_by_role("heading", name="Body")).to_be_visible()
    expect(page.locator(".page")).to_contain_text(shown[:60])
    assert page.locator(".page img, .page script").count() == 0


def test_a_body_that_is_nested_deeper_than_the_stack_is_edited(
    busy: Served, open_page: OpenPage
) -> None:
    page = open_page(busy, f"#/message/{busy.publish(busy.queue(), {})}")
    page.get_by_role("button", name="Edit and resend").click()
    page.get_by_role("textbox", name="Body (JSON)").fill("[" * 10_000 + "]" * 10_000)
    send = page.get_by_role("button", name="Send the new message")
    expect(send).not_to_have_attribute("aria-disabled", "true")


def test_binary_bodies_are_shown_in_hexadecimal(busy: Served, open_page: OpenPage) -> None:
    sent = {"queue": busy.queue(), "body_base64": "AAECA//+PHNjcmlwdD4="}
    id = busy.post("/v1/publish", sent).json["id"]
    page = open_page(busy, f"#/message/{id}")
    expect(page.get_by_text("00 01 02 03 ff fe")).to_be_visible()
    edit = page.get_by_role("button", name="Edit and resend")
    expect(edit).to_have_attribute("title", re.compile("The body is not JSON"))


@pytest.mark.parametrize(
    "body",
    [{"body_base64": "AAECA//+", "content_type": "image/png"}, {"body": {"big": 2**63}}],
)
def test_a_copied_command_publishes_the_message_again(
    busy: Served, open_page: OpenPage, body: dict[str, object]
) -> None:
    sent = {
        "queue": busy.queue(), "type": "it's", "priority": 3, "headers": {"tenant": "acme"},
        "labels": {"tier": "gold"}, "ordering_key": "ada", "correlation_id": "order-1", **body,
    }  # fmt: skip
    id = busy.post("/v1/publish", sent).json["id"]
    page = open_page(busy, f"#/message/{id}")
    page.get_by_role("button", name="Copy curl: publish again").click()
    command = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    assert command[:3] == ["curl", "-s", f"http://127.0.0.1:{busy.port}/v1/publish"]
    again = busy.post("/v1/publish", command[-1].encode()).json["id"]
    first, second = (busy.get(f"/v1/messages/{each}").json for each in (id, again))
    assert {name: second.get(name) for name in sent} == {name: first.get(name) for name in sent}


def test_a_person_decides_by_keyboard(busy: Served, open_page: OpenPage) -> None:
    options = [{"id": "approve", "label": "Approve", "kind": "approve"}]
    spec: dict[str, object] = {
        "title": "Refund?",
        "options": options,
        "input": {"amount": {"type": "number"}},
    }
    spec["self_approval"] = True
    made = busy.post("/v1/inbox", {"spec": spec})
    assert made.status == 201, made
    page = open_page(busy, f"#/inbox?step={made.json['id']}")
    page.get_by_label("Amount").or_(page.get_by_label("amount")).fill("12.5")
    page.get_by_label("Comment").press("Tab")
    page.keyboard.press("a")
    expect(page.get_by_text("Approve: decided.")).to_be_visible()
    step = busy.get(f"/v1/inbox/{made.json['id']}").json
    assert (step["decision"]["choice"], step["decision"]["inputs"]) == ("approve", {"amount": 12.5})


def test_a_rule_is_tested_before_it_is_saved(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    for total in (5, 900):
        busy.publish(queue, {"total": total})
    page = open_page(busy, "#/rules")
    page.get_by_role("button", name="New rule").click()
    page.get_by_label("Name").fill("large")
    rule = {"queue": queue, "when": "message.body.total >> 500", "do": [{"route": busy.queue()}]}
    editor = page.get_by_label("Rule (JSON")
    editor.fill(json.dumps(rule, indent=2))
    expect(page.get_by_role("alert")).to_contain_text("Line 3: when, column 21: Syntax error")
    editor.fill(json.dumps(rule)[:-1])
    expect(page.get_by_role("alert")).to_contain_text("Line 1: the text ends too early")
    save = page.get_by_role("button", name="Save rule")
    expect(save).to_have_attribute("aria-disabled", "true")
    editor.fill(json.dumps(rule).replace(">>", ">"))
    expect(page.get_by_role("status").filter(has_text="1 of 2 messages match")).to_be_visible()
    expect(page.get_by_role("heading", name="Last message")).to_contain_text(queue)
    page.get_by_role("button", name="Save rule").click()
    expect(page.get_by_role("cell", name="message.body.total > 500")).to_be_visible()


def test_a_queue_is_changed_after_a_review_and_paused(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    page = open_page(busy, f"#/queues/{queue}")
    page.get_by_label("Attempts").fill("9")
    page.get_by_role("button", name="Review 1 change").click()
    expect(page.get_by_role("dialog").get_by_role("cell", name="max_attempts")).to_be_visible()
    page.get_by_role("button", name="Save 1").click()
    expect(page.get_by_text("are saved")).to_be_visible()
    assert busy.get(f"/v1/queues/{queue}").json["settings"]["max_attempts"] == 9
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Pause queue").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert busy.get(f"/v1/queues/{queue}").json["state"] == "paused"


def test_a_wrong_filter_says_where_and_what_was_meant(busy: Served, open_page: OpenPage) -> None:
    page = open_page(busy, "#/messages?filter=quue:mail")
    expect(page.get_by_role("alert")).to_contain_text("did you mean 'queue'")


def open_palette(page: Page) -> None:
    """Opens the palette, and waits until it takes what is typed."""
    page.keyboard.press("Control+k")
    expect(page.get_by_role("combobox", name="Find a message, queue or command")).to_be_focused()


def test_the_palette_finds_queues_and_messages(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    id = busy.publish(queue)
    page = open_page(busy)
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    open_palette(page)
    page.keyboard.type(queue)
    page.get_by_role("option", name=f"{queue} queue").click()
    expect(page.get_by_role("heading", name="Settings")).to_be_visible()
    open_palette(page)
    page.keyboard.type(id)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Explain")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()


def test_two_tabs_share_one_stream(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    page = open_page(busy)
    expect(page.get_by_role("button", name="Live")).to_be_visible()
    # The first page has its stream by now.
    streams: list[str] = []
    page.context.on("request", lambda asked: note_stream(streams, asked.url))
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.get_by_role("button", name="Live")).to_be_visible()
    busy.publish(queue)
    for each in (page, other):
        expect(each.get_by_role("row").filter(has_text=queue)).to_be_visible()
    assert streams == []
    # The other one takes over when the first one goes.
    page.close()
    busy.publish(late := busy.queue())
    expect(other.get_by_role("row").filter(has_text=late)).to_be_visible()
    assert len(streams) == 1


def note_stream(streams: list[str], url: str) -> None:
    if url.endswith("/v1/changes"):
        streams.append(url)


def test_a_restart_of_the_server_is_said_and_survived(folder: Path, open_page: OpenPage) -> None:
    url = f"sqlite:///{folder}/restart.db"
    first = Served(url, folder)
    try:
        first.wait_until_ready()
        queue = first.queue()
        page = open_page(first, strict=False)
        expect(page.get_by_role("button", name="Live")).to_be_visible()
        first.stop()
        expect(page.get_by_role("button", name="Reconnecting")).to_be_visible()
        second = Served(url, folder, "--port", first.port)
        try:
            second.port = first.port
            second.wait_until_ready()
            expect(page.get_by_role("button", name="Live")).to_be_visible(timeout=30_000)
            second.publish(queue)
            expect(page.get_by_role("row").filter(has_text=queue)).to_be_visible()
        finally:
            second.end()
    finally:
        first.end()


def test_a_viewer_signs_in_and_may_only_look(locked: Served, open_page: OpenPage) -> None:
    queue = locked.queue()
    id = make_dead(locked, queue, "ValueError: no")
    page = open_page(locked, f"#/message/{id}")
    page.get_by_label("API key or token").fill("psk_0_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("invalid API key")
    page.get_by_label("API key or token").fill(keyed(locked, "viewer").key or "")
    page.get_by_role("button", name="Sign in").click()
    redrive = page.get_by_role("button", name="Redrive")
    expect(redrive).to_have_attribute("aria-disabled", "true")
    reason = f"Your key may not manage queue {queue}. Ask an administrator"
    expect(redrive).to_have_attribute("title", re.compile(reason))
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key or token")).to_be_visible()


def test_a_new_key_is_shown_once(locked: Served, open_page: OpenPage) -> None:
    page = open_page(locked, "#/access")
    page.get_by_label("API key or token").fill(locked.key or "")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name="New key").click()
    page.get_by_label("Name").fill("ada")
    page.get_by_role("button", name="Create key").click()
    secret = page.get_by_role("dialog").locator("code").inner_text()
    assert secret.startswith("psk_")
    page.get_by_role("button", name="I have copied it").click()
    expect(page.get_by_text(secret)).to_have_count(0)
    expect(page.get_by_role("cell", name="ada", exact=True)).to_be_visible()
    page.goto(page.url.replace("#/access", "#/audit"))
    page.get_by_role("button", name="Verify the log").click()
    expect(page.get_by_text("The log is intact")).to_be_visible()


def test_the_dashboard_works_on_postgresql(
    postgres_server: Postgres, folder: Path, open_page: OpenPage
) -> None:
    with served(postgres_server.create_database(), folder) as server:
        queue = server.queue()
        page = open_page(server)
        expect(page.get_by_text("postgres")).to_be_visible()
        id = make_dead(server, queue, "ValueError: no")
        expect(page.get_by_text("1 message died in the last 5 minutes")).to_be_visible()
        page.goto(f"{page.url.split('#')[0]}#/message/{id}")
        page.get_by_role("button", name="Redrive").click()
        expect(page.get_by_text("is ready again")).to_be_visible()
        until(lambda: server.state(id) == "ready")


def test_a_queue_says_how_it_is_and_is_paused_resumed_and_purged(
    busy: Served, open_page: OpenPage
) -> None:
    queue = busy.queue(ordering="fifo")
    ids = [busy.publish(queue, ordering_key=f"key-{number}") for number in range(3)]
    page = open_page(busy, f"#/queues/{queue}")
    state = page.get_by_role("list", name="State of the queue")
    expect(state).to_contain_text("delivering")
    expect(state).to_contain_text("first in, first out")
    expect(state).to_contain_text("no worker")
    expect(state).to_contain_text("order by key")
    # The server counts messages every few seconds; a dialog shows what was counted last.
    for _ in range(60):
        page.get_by_role("button", name="Pause").click()
        if "3 ready messages will wait" in page.get_by_role("dialog").inner_text():
            break
        page.get_by_role("button", name="Cancel").click()
        page.wait_for_timeout(500)
    expect(page.get_by_role("dialog")).to_contain_text("3 ready messages will wait")
    page.get_by_role("button", name="Pause queue").click()
    expect(state).to_contain_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(state).to_contain_text("delivering")
    page.get_by_role("button", name="Purge ready").click()
    page.get_by_role("button", name="Purge 3").click()
    expect(page.get_by_text("3 messages purged.")).to_be_visible()
    assert {busy.state(id) for id in ids} == {"cancelled"}
