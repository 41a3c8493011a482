"""What waits, on the dashboard: steps, schedules and people."""

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from playwright.sync_api import expect

from penstock import Context, Penstock
from tests.cli.terminal import until
from tests.dashboard.conftest import OpenPage
from tests.dashboard.test_pages import check_accessible
from tests.http.keys import keyed
from tests.http.served import Served


def run_steps(store: str, queue: str) -> str:
    """Runs a task until it waits for a signal, and returns its id."""
    app = Penstock(store)

    @app.task(queue=queue)
    async def refund(context: Context) -> Any:
        await context.step("charge", lambda: {"order": 2**60 + 1, "rate": 612.0})
        return await context.signal("parcel-arrived", timeout="14d")

    async def run() -> str:
        async with asyncio.timeout(60), await app.worker():
            broker = await app.broker()
            job = await refund.options(correlation_id="order 90017/a").aenqueue()
            while len((await broker.waits.steps(job.id)).steps) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        await app.aclose()
        return str(job.id)

    # The browser's event loop runs in this thread.
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, run()).result()


def test_a_message_that_waits_shows_its_steps_and_its_trace(
    busy: Served, open_page: OpenPage
) -> None:
    id = run_steps(busy.store, busy.queue())
    page = open_page(busy, f"#/message/{id}")
    charge = page.get_by_role("listitem").filter(has_text="charge")
    # As it was sent, not as a browser rounds it.
    expect(charge).to_contain_text('{"order":1152921504606846977,"rate":612.0}')
    # How long it took, and not when.
    expect(charge.get_by_role("time")).to_have_text(re.compile(r"^[\d.]+ m?s$"))
    waiting = page.get_by_role("listitem").filter(has_text="parcel-arrived").last
    expect(waiting).to_contain_text("waits for a signal · due")
    expect(page.get_by_text(f"Why is {id} not running?")).to_be_visible()
    check_accessible(page)
    page.get_by_role("link", name="Open the trace").click()
    expect(page.get_by_role("row").filter(has_text="claimed").first).to_be_visible()
    check_accessible(page)


def test_a_message_links_its_callbacks_and_its_workflow(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    node = {"queue": queue, "type": "collect", "callback": "http://127.0.0.1:9/hook"}
    after = {"message": {"queue": queue, "type": "close"}, "after": [0]}
    flow = busy.post("/v1/workflows", {"name": "close", "nodes": [{"message": node}, after]})
    assert flow.status == 201, flow
    (message,) = busy.claim(queue)
    assert busy.post("/v1/complete", {"token": message["token"]}).status == 200
    path = f"/v1/messages/{message['id']}/callbacks"
    until(lambda: bool(busy.get(path).json["messages"]))
    page = open_page(busy, f"#/message/{message['id']}")
    expect(page.get_by_role("heading", name="Callbacks")).to_be_visible()
    related = page.get_by_role("group", name=f"Messages related to {message['id']}")
    # To the node that waited for it, and to its callback.
    expect(related.locator(".edge")).to_have_count(2)
    page.get_by_role("link", name=flow.json["id"], exact=True).click()
    expect(page.get_by_role("group", name="Graph of close: 2 nodes")).to_be_visible()


CRON = {
    "0 9,17 * * *": "every day at 09:00 and 17:00",
    "0 9 * * 1,3,5": "on Monday, Wednesday and Friday at 09:00",
    "*/15 9-17 * * *": "every 15 minutes from 09:00 to 17:59",
    "30 4 1 1,7 *": "on day 1 of the month at 04:30 in January and July",
    "0 12 1-7 * MON": "on day 1 to 7 of each month or every Monday at 12:00",
    "0 9 L * *": "0 9 L * *",
}


def test_cron_expressions_are_shown_in_words(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    for number, cron in enumerate(CRON):
        path = f"/v1/queues/{queue}/schedules/s{number}"
        assert busy.put(path, {"cron": cron, "message": {"type": "report"}}).status == 200
    page = open_page(busy, "#/schedules")
    for number, (cron, words) in enumerate(CRON.items()):
        row = page.get_by_role("row").filter(has_text=queue).filter(has_text=f"s{number}")
        cell = row.get_by_role("cell").nth(2)
        expect(cell).to_contain_text(words)
        # An expression without words is shown once.
        assert cell.inner_text().count(cron) == 1


def test_a_schedule_lists_its_next_runs_and_is_paused(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    path = f"/v1/queues/{queue}/schedules/nightly"
    sent = {"cron": "30 9 * * *", "timezone": "Europe/Rome", "message": {"type": "report"}}
    assert len(busy.put(path, sent).json["next"]) == 5
    page = open_page(busy, "#/schedules")
    row = page.get_by_role("row").filter(has_text=queue)
    expect(row).to_contain_text("every day at 09:30")
    expect(row.locator(".ticks time")).to_have_count(5)
    row.get_by_role("button", name="Run now").click()
    expect(page.get_by_text("Published as message")).to_be_visible()
    row.get_by_role("button", name="Pause").click()
    expect(row.get_by_role("button", name="Resume")).to_be_visible()
    (found,) = [each for each in busy.get("/v1/schedules").json["schedules"]
                if each["queue"] == queue]  # fmt: skip
    assert (found["paused"], found["message"]["type"], found.get("next")) == (True, "report", None)
    (published,) = busy.get("/v1/messages", filter=f"queue:{queue}").json["messages"]
    assert published["type"] == "report"


def request_decision(server: Served, **more: object) -> str:
    options = [
        {"id": "approve", "label": "Approve", "kind": "approve", "requires": ["amount"]},
        {"id": "reject", "label": "Reject", "kind": "reject"},
    ]
    spec = {
        "title": "Refund Ada?",
        "content": "The **parcel** broke.\n<img src=x onerror=alert(1)>"
        " [Photos](https://example.org/17) [run](javascript:alert(1))",
        "options": options,
        "input": {
            "amount": {"type": "number", "title": "Amount"},
            "account": {"enum": ["giro", "card"], "title": "Account", "required": True},
            "day": {"format": "date", "title": "Day"},
            "urgent": {"type": "boolean", "title": "Urgent"},
        },
        "self_approval": True,
        **more,
    }
    made = server.post("/v1/inbox", {"spec": spec})
    assert made.status == 201, made
    id: str = made.json["id"]
    return id


def test_a_person_claims_and_decides_a_step_with_its_inputs(
    busy: Served, open_page: OpenPage
) -> None:
    id = request_decision(busy)
    page = open_page(busy, f"#/inbox?step={id}")
    expect(page.get_by_text("<img src=x onerror=alert(1)>")).to_be_visible()
    assert page.locator(".page img").count() == 0
    expect(page.locator("strong", has_text="parcel")).to_be_visible()
    hrefs = page.locator(".markdown a").evaluate_all("all => all.map(each => each.href)")
    assert hrefs == ["https://example.org/17"]
    approve = page.get_by_role("button", name="Approve")
    expect(approve).to_have_attribute("title", "Fill in Amount, Account first.")
    check_accessible(page)
    page.get_by_role("button", name="Claim").click()
    expect(page.get_by_role("button", name="Release")).to_be_visible()
    page.get_by_label("Account").select_option("giro")
    page.get_by_label("Amount").fill("612.4")
    page.get_by_label("Day").fill("2026-12-24")
    page.get_by_label("Urgent").check()
    page.get_by_label("Comment").fill("Photos seen.")
    approve.click()
    expect(page.get_by_text("Approve: decided.")).to_be_visible()
    decision = busy.get(f"/v1/inbox/{id}").json["decision"]
    given = {"amount": 612.4, "account": "giro", "day": "2026-12-24", "urgent": True}
    assert (decision["choice"], decision["inputs"]) == ("approve", given)
    assert decision["comment"] == "Photos seen."


def test_a_step_says_who_decides_and_what_follows(locked: Served, open_page: OpenPage) -> None:
    more = {"assign": {"roles": ["finance"]}, "timeout": 7_200, "on_timeout": {"escalate": "cfo"}}
    id = request_decision(locked, **more)
    auditor = keyed(locked, grants=["read", "read:_human"])
    page = open_page(locked, f"#/inbox?step={id}")
    page.get_by_label("API key or token").fill(auditor.key or "")
    page.get_by_role("button", name="Sign in").click()
    form = page.get_by_role("form", name="Refund Ada?")
    expect(form).to_contain_text("Waits for role finance")
    expect(form).to_contain_text("then escalates to cfo.")
    approve = form.get_by_role("button", name="Approve")
    expect(approve).to_have_attribute("title", re.compile("You may not decide this: .*assigned"))


def test_a_step_is_delegated(busy: Served, open_page: OpenPage) -> None:
    id = request_decision(busy)
    page = open_page(busy, f"#/inbox?step={id}")
    page.get_by_role("button", name="Delegate…").click()
    page.get_by_label("Person").fill("jwt:bob")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Delegated to jwt:bob.")).to_be_visible()
    assert busy.get(f"/v1/inbox/{id}").json["delegates"] == {"jwt:bob": "local"}


def test_a_person_decides_by_the_page_behind_a_link(busy: Served, open_page: OpenPage) -> None:
    id = request_decision(busy, assign={"users": ["ann@example.org"]})
    link = busy.post(f"/v1/inbox/{id}/links", {"person": "ann@example.org"})
    assert link.status == 201, link
    page = open_page(busy, f"v1/decide/{link.json['url'].rsplit('/', 1)[-1]}")
    expect(page.get_by_text("<img src=x onerror=alert(1)>")).to_be_visible()
    check_accessible(page)
    page.get_by_label("Account *").select_option("card")
    page.get_by_role("button", name="Reject").click()
    expect(page.get_by_text("Decided: Reject, by ann@example.org")).to_be_visible()
    decision = busy.get(f"/v1/inbox/{id}").json["decision"]
    assert (decision["choice"], decision["by"]) == ("reject", "ann@example.org")
