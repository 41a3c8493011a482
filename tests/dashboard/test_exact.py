"""What the dashboard sends and says is exact: numbers, groups, counts and rights."""

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, Route, expect

from tests.cli.terminal import until
from tests.dashboard.conftest import OpenPage
from tests.dashboard.scenery import make_dead
from tests.dashboard.test_trouble import sign_in
from tests.http.keys import keyed
from tests.http.served import Served, served

BIG = "12345678901234567890"
BODY = f'{{"id": {BIG}, "rate": 1.10}}'


def count_rows(page: Page, queue: str, number: int) -> None:
    expect(page.get_by_role("row").filter(has_text=queue)).to_have_count(number)


def find_row(page: Page, id: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_label(f"Select message {id}", exact=True))


def test_a_schedule_is_paused_resumed_and_run_with_its_message_as_it_is(
    busy: Served, open_page: OpenPage
) -> None:
    queue = busy.queue()
    path = f"/v1/queues/{queue}/schedules/exact"
    new = f'{{"cron": "0 3 1 1 *", "message": {{"body": {BODY}}}}}'
    assert busy.ask("PUT", path, new.encode()).status == 200
    page = open_page(busy, "#/schedules")
    row = page.get_by_role("row").filter(has_text=queue)
    row.get_by_role("button", name="Pause").click()
    expect(row.get_by_role("button", name="Resume")).to_be_visible()
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_role("button", name="Pause")).to_be_visible()
    row.get_by_role("button", name="Run now").click()
    said = page.get_by_text(re.compile(r"Published as message \d+\."))
    expect(said).to_be_visible()
    id = re.findall(r"message (\d+)", said.inner_text())[0]
    assert BODY.encode() in busy.get(f"/v1/messages/{id}").body
    assert BODY.encode() in busy.get("/v1/schedules", limit=1000).body


def test_a_link_to_a_schema_opens_it_and_saves_it_as_it_was_written(
    busy: Served, open_page: OpenPage
) -> None:
    name = f"exact-{busy.queue()}"
    schema = f'{{"type": "object", "properties": {{"id": {{"maximum": {BIG}}}}}}}'
    saved = busy.ask("POST", f"/v1/schemas/{name}", f'{{"schema": {schema}}}'.encode())
    assert saved.status == 201, saved
    page = open_page(busy, f"#/schemas?schema={name}")
    editor = page.get_by_label("JSON Schema")
    expect(editor).to_have_value(re.compile(f'"maximum": {BIG}'))
    expect(page.get_by_label("Name")).to_have_value(name)
    expect(page.get_by_role("alert")).to_have_count(0)
    page.reload()
    expect(editor).to_have_value(re.compile(f'"maximum": {BIG}'))
    editor.fill(editor.input_value().replace('"object"', '["object", "null"]'))
    page.get_by_role("button", name="Save version").click()
    expect(page.get_by_text(f"Saved as {name}@2.")).to_be_visible()
    assert BIG.encode() in busy.get(f"/v1/schemas/{name}").body


def test_a_group_of_failures_leads_to_its_messages_and_redrives_no_others(
    busy: Served, open_page: OpenPage
) -> None:
    queue = busy.queue()
    slow = [make_dead(busy, queue, f"TimeoutError: no answer from host-{n}") for n in range(3)]
    other = make_dead(busy, queue, "TimeoutError: no answer from the mail server in time")
    page = open_page(busy, f"#/failures?queue={queue}")
    group = page.get_by_role("article").filter(has_text="host-<n>")
    group.get_by_title("Show these messages").click()
    count_rows(page, queue, 3)
    page.go_back()
    group.get_by_role("button", name="Redrive").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive 3").click()
    until(lambda: {busy.state(id) for id in slow} == {"ready"})
    assert busy.state(other) == "dead"


def test_a_bulk_action_changes_what_its_button_counted(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    before = [make_dead(busy, queue, "KeyError: x") for _ in range(2)]
    page = open_page(busy, f"#/messages?filter=state:dead queue:{queue}")
    count_rows(page, queue, 2)
    page.keyboard.press("a")
    page.get_by_role("button", name="Purge 2").click()
    button = page.get_by_role("dialog").get_by_role("button", name="Purge 2")
    expect(button).not_to_have_attribute("aria-disabled", "true")
    late = make_dead(busy, queue, "KeyError: x")
    button.click()
    until(lambda: {busy.state(id) for id in before} == {"cancelled"})
    assert busy.state(late) == "dead"


def test_a_row_that_leaves_the_filter_says_so_and_the_opened_one_is_marked(
    busy: Served, open_page: OpenPage
) -> None:
    queue = busy.queue()
    first = make_dead(busy, queue, "KeyError: x")
    second = make_dead(busy, queue, "KeyError: y")
    page = open_page(busy, f"#/messages?filter=state:dead queue:{queue}&id={first}")
    row = find_row(page, first)
    expect(row).to_have_attribute("aria-current", "true")
    assert busy.post(f"/v1/messages/{first}/redrive").status == 200
    expect(row).to_have_attribute("title", re.compile("no longer matches"))
    expect(row.get_by_text("ready")).to_be_visible()
    count_rows(page, queue, 2)
    still = find_row(page, second)
    expect(still).not_to_have_attribute("title", re.compile("no longer"))


def test_an_answer_to_the_filter_before_is_not_shown(busy: Served, open_page: OpenPage) -> None:
    queue, empty = busy.queue(), busy.queue()
    busy.publish(queue)
    page = open_page(busy, f"#/messages?filter=queue:{queue}")
    count_rows(page, queue, 1)
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route(re.compile(f"/v1/messages\\?.*{queue}"), hold)
    with page.expect_request(re.compile(f"/v1/messages\\?.*{queue}")) as asked:
        busy.publish(queue)
    page.evaluate(f"location.hash = '#/messages?filter=queue:{empty}'")
    expect(page.get_by_text("No message matches")).to_be_visible()
    with page.expect_response(lambda response: response.request == asked.value) as answered:
        held[0].continue_()
    answered.value.finished()
    # What the page does with the answer is over in the next frame but one.
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    expect(page.get_by_text("No message matches")).to_be_visible()
    count_rows(page, queue, 0)


def test_a_key_for_some_queues_acts_on_these(locked: Served, open_page: OpenPage) -> None:
    own, other = locked.queue(), locked.queue()
    mine, foreign = make_dead(locked, own, "KeyError: x"), make_dead(locked, other, "KeyError: x")
    key = keyed(locked, "viewer", grants=[f"manage:{own}"]).key
    page = open_page(locked, f"#/messages?filter=state:dead queue:{own},{other}")
    sign_in(page, key)
    redrive = page.get_by_role("button", name=re.compile("^Redrive 1"))
    for id, reason in ((foreign, f"may not manage queue {other}"), (mine, "")):
        page.get_by_label(f"Select message {id}", exact=True).check()
        if reason:
            expect(redrive).to_have_attribute("title", re.compile(reason))
            page.get_by_label(f"Select message {id}", exact=True).uncheck()
    redrive.click()
    until(lambda: locked.state(mine) == "ready")
    assert locked.state(foreign) == "dead"


def test_a_number_is_typed_again_in_a_cleared_field(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    page = open_page(busy, f"#/queues/{queue}")
    field = page.get_by_label("Attempts", exact=True)
    field.click()
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    expect(field).to_have_value("")
    expect(page.get_by_text("A number from 0 on is needed.")).to_be_visible()
    field.press_sequentially("9")
    expect(field).to_have_value("9")
    assert "fair" not in page.get_by_label("Ordering").inner_text()
    page.get_by_label("Masked fields").press_sequentially("body.card, error")
    page.get_by_text("More settings").click()
    page.get_by_label("Lowest priority").fill("-5")
    expect(page.get_by_text('"competing"')).to_be_visible()
    page.get_by_role("button", name="Review 3 changes").click()
    page.get_by_role("dialog").get_by_role("button", name="Save 3").click()
    expect(page.get_by_text(f"Settings of {queue} are saved.")).to_be_visible()
    settings = busy.get(f"/v1/queues/{queue}").json["settings"]
    assert (settings["max_attempts"], settings["priority_min"]) == (9, -5)
    assert settings["mask"] == ["body.card", "error"]


def test_a_pause_names_what_it_does(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue("scaiqueue")
    busy.publish(queue)
    page = open_page(busy, f"#/queues/{queue}")
    purge = page.get_by_role("button", name="Purge ready")
    expect(purge).not_to_have_attribute("aria-disabled", "true")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("1 ready message will wait")).to_be_visible()
    expect(page.get_by_text("Publishers get an error until it is resumed.")).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_text("still delivers 1 unfinished message.")).to_be_visible()


def test_a_new_key_is_copied_without_a_clipboard_api(locked: Served, open_page: OpenPage) -> None:
    page = open_page(locked, "#/access")
    sign_in(page, locked.key)
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.evaluate("addEventListener('copy', () => (window.copied = String(getSelection())))")
    page.get_by_role("button", name="New key").click()
    page.get_by_label("Name").fill("copied")
    page.get_by_role("dialog").get_by_role("button", name="Create key").click()
    page.get_by_role("dialog").get_by_role("button", name="Copy").click()
    expect(page.get_by_text("The browser refused to copy")).to_have_count(0)
    assert page.evaluate("window.copied").startswith("psk_")


def test_the_balance_sheet_speaks_for_the_queues_it_checked(
    folder: Path, open_page: OpenPage
) -> None:
    with served(f"sqlite:///{folder}/balance.db", folder) as own:
        queues = [own.queue() for _ in range(52)]
        own.publish(queues[0])
        own.publish(queues[0])
        (message,) = own.claim(queues[0])
        own.post("/v1/complete", {"token": message["token"]})
        page = open_page(own, "#/analytics")
        said = page.get_by_role("status").filter(has_text="No message was lost")
        # The default queue counts too. What moved in this hour is checked like the rest.
        expect(said).to_contain_text("in 50 queues: as many are unfinished as the history says.")
        expect(said).to_contain_text("3 queues not checked.")
        row = page.get_by_role("row").filter(has_text=queues[0])
        expect(row.get_by_role("cell", name="equal")).to_be_visible()
