"""The tasks of a new operator, by mouse, by keyboard alone, and on a phone."""

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.dashboard.conftest import OpenPage
from tests.dashboard.scenery import make_dead
from tests.extent import LONG
from tests.http.served import Served

PHONE = (390, 844)
DESKTOP = (1440, 900)
KEYS = {
    "Messages": "m", "Failures": "f", "Queues": "q", "Inbox": "i", "Rules": "r", "Analytics": "y",
}  # fmt: skip
# Tabs until a control has the focus. A page that needs more is too long for the keyboard.
MAX_TABS = 120


class Operator:
    """Uses a page by one kind of input only."""

    def __init__(self, hand: str, page: Page) -> None:
        self.hand = hand
        self.page = page
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()

    def visit(self, title: str) -> None:
        if self.hand == "keyboard":
            self.page.keyboard.press("g")
            self.page.keyboard.press(KEYS[title])
        else:
            if self.hand == "phone":
                self.page.get_by_role("button", name="Menu").click()
            menu = self.page.get_by_role("navigation", name="Main")
            menu.get_by_role("link", name=title).click()
        expect(self.page.get_by_role("heading", name=title).first).to_be_visible()

    def use(self, control: Locator) -> None:
        expect(control).to_be_visible()
        if self.hand == "keyboard":
            self.reach(control)
            self.page.keyboard.press("Enter")
        else:
            control.click()

    def write(self, field: Locator, text: str) -> None:
        expect(field).to_be_visible()
        if self.hand == "keyboard":
            self.reach(field)
            self.page.keyboard.press("ControlOrMeta+A")
            self.page.keyboard.type(text)
        else:
            field.fill(text)

    def reach(self, control: Locator) -> None:
        for _ in range(MAX_TABS):
            if control.evaluate("element => element === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        pytest.fail(f"{control} is not reached by {MAX_TABS} tabs")

    def check_width(self) -> None:
        assert self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# A phone is clicked as well, and the keyboard works on the same layout as the mouse.
@pytest.fixture(params=[pytest.param("mouse", marks=LONG), "keyboard", "phone"])
def hand(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def start(open_page: OpenPage, server: Served, hand: str) -> Operator:
    return Operator(hand, open_page(server, size=PHONE if hand == "phone" else DESKTOP))


def test_an_operator_finds_why_a_message_is_not_running(
    busy: Served, open_page: OpenPage, hand: str
) -> None:
    queue = busy.queue()
    id = busy.publish(queue, {"order": 7})
    assert busy.post(f"/v1/queues/{queue}/pause").status == 200
    operator = start(open_page, busy, hand)
    page = operator.page
    operator.visit("Messages")
    filter_bar = page.get_by_role("combobox")
    operator.write(filter_bar, f"queue:{queue}")
    filter_bar.press("Enter")
    expect(page.get_by_role("row").filter(has_text=id)).to_have_count(1)
    if hand == "keyboard":
        page.keyboard.press("Escape")
        page.keyboard.press("Enter")
    else:
        page.get_by_role("row").filter(has_text=id).click(position={"x": 200, "y": 15})
    operator.use(page.get_by_role("button", name="Explain"))
    reason = page.get_by_text(f"Why is {id} not running?").locator("..")
    expect(reason).to_contain_text("paused")
    operator.check_width()


def test_an_operator_redrives_one_cause_of_failure_at_a_rate(
    busy: Served, open_page: OpenPage, hand: str
) -> None:
    queue = busy.queue()
    error = f"{hand.title()}Error: no answer from host-{{}}"
    ids = [make_dead(busy, queue, error.format(number)) for number in range(3)]
    other = make_dead(busy, queue, f"{hand.title()}Error: another cause")
    operator = start(open_page, busy, hand)
    page = operator.page
    operator.visit("Failures")
    group = page.get_by_role("article").filter(has_text=f"{hand.title()}Error: no answer")
    operator.use(group.get_by_role("button", name="Redrive"))
    dialog = page.get_by_role("dialog")
    operator.write(dialog.get_by_label("At most per second"), "50")
    operator.use(dialog.get_by_role("button", name="Redrive 3"))
    expect(page.get_by_text("Redrive: 3 messages done.")).to_be_visible()
    assert {busy.state(id) for id in ids} == {"ready"}
    assert busy.state(other) == "dead"
    operator.check_width()


def test_an_operator_pauses_a_queue(busy: Served, open_page: OpenPage, hand: str) -> None:
    queue = busy.queue()
    busy.publish(queue)
    operator = start(open_page, busy, hand)
    page = operator.page
    operator.visit("Queues")
    operator.write(page.get_by_label("Find a queue"), queue)
    operator.use(page.get_by_role("cell").get_by_role("link", name=queue, exact=True))
    operator.use(page.get_by_role("button", name="Pause", exact=True))
    operator.use(page.get_by_role("dialog").get_by_role("button", name="Pause queue"))
    expect(page.get_by_text(f"Queue {queue} is paused.")).to_be_visible()
    assert busy.get(f"/v1/queues/{queue}").json["state"] == "paused"
    operator.check_width()


def test_an_operator_approves_a_refund(busy: Served, open_page: OpenPage, hand: str) -> None:
    spec = {
        "title": f"Refund 612.40 to {hand}?",
        "options": [{"id": "approve", "label": "Approve", "kind": "approve"}],
        "self_approval": True,
    }
    made = busy.post("/v1/inbox", {"spec": spec})
    assert made.status == 201, made
    operator = start(open_page, busy, hand)
    page = operator.page
    operator.visit("Inbox")
    operator.use(page.get_by_role("button", name=f"Refund 612.40 to {hand}?"))
    form = page.get_by_role("form", name=f"Refund 612.40 to {hand}?")
    expect(form).to_be_visible()
    operator.use(form.get_by_role("button", name="Approve"))
    expect(page.get_by_text("Approve: decided.")).to_be_visible()
    assert busy.get(f"/v1/inbox/{made.json['id']}").json["decision"]["choice"] == "approve"
    operator.check_width()


def test_an_operator_tests_a_rule_on_stored_messages(
    busy: Served, open_page: OpenPage, hand: str
) -> None:
    queue, name = busy.queue(), f"large-{hand}"
    for total in (5, 900, 1_200):
        busy.publish(queue, {"total": total})
    rule = {"queue": queue, "when": "message.body.total > 2000", "do": [{"set": {"priority": 5}}]}
    assert busy.ask("PUT", f"/v1/rules/{name}", rule).status == 200
    operator = start(open_page, busy, hand)
    page = operator.page
    operator.visit("Rules")
    operator.use(page.get_by_role("button", name=name, exact=True))
    expect(page.get_by_role("status").filter(has_text="0 of 3 messages match")).to_be_visible()
    text = '{"queue": "%s", "when": "message.body.total > 500", "do": [{"set": {"priority": 5}}]}'
    operator.write(page.get_by_label("Rule (JSON)"), text % queue)
    expect(page.get_by_role("status").filter(has_text="2 of 3 messages match")).to_be_visible()
    # Nothing is written before it is saved.
    assert busy.get(f"/v1/rules/{name}").json["when"] == rule["when"]
    operator.check_width()


def test_an_operator_sees_that_nothing_was_lost(
    server: Served, open_page: OpenPage, hand: str
) -> None:
    operator = start(open_page, server, hand)
    operator.visit("Analytics")
    sheet = operator.page.get_by_role("status").filter(has_text="No message was lost")
    expect(sheet).to_be_visible()
    operator.check_width()
