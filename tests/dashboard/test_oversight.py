"""What operators watch: anomalies, alerts, the audit log, workers and bulk actions."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.cli.terminal import until
from tests.dashboard.conftest import OpenPage
from tests.dashboard.scenery import make_dead
from tests.dashboard.test_pages import check_accessible
from tests.http.receiver import Receiver, receiving
from tests.http.served import Served


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def test_an_alert_is_created_tested_and_deleted(
    busy: Served, open_page: OpenPage, receiver: Receiver
) -> None:
    page = open_page(busy, "#/anomalies")
    page.get_by_role("button", name="New alert").click()
    dialog = page.get_by_role("dialog", name="New alert")
    check_accessible(page)
    dialog.get_by_label("Name").fill("pager")
    dialog.get_by_label("Webhook").fill(f"{receiver.url}/pager")
    dialog.get_by_label("Queues").fill("only-this, only-that")
    dialog.get_by_role("button", name="Create alert").click()
    row = page.get_by_role("table", name="Alerts").get_by_role("row").filter(has_text="pager")
    expect(row).to_contain_text("critical; queue only-this, queue only-that")
    row.get_by_role("button", name="Send a test").click()
    assert receiver.wait("/pager")[0].json["type"] == "alert.test"
    expect(row).to_contain_text("delivered")
    row.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete 1 alert").click()
    expect(row).to_have_count(0)
    assert busy.get("/v1/alerts").json["alerts"] == []


def test_a_kind_of_anomaly_is_muted_in_its_queue(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    for _ in range(3):
        make_dead(busy, queue, "ValueError: no")

    def find() -> list[str]:
        found = busy.get("/v1/anomalies", queue=queue, kind="dlq_movement").json["anomalies"]
        return [each["id"] for each in found]

    until(find)
    page = open_page(busy, "#/anomalies?kind=dlq_movement")
    row = page.get_by_role("row").filter(has_text=queue)
    expect(row.get_by_role("link", name="3", exact=True)).to_have_attribute(
        "href", re.compile("filter=state%3Adead")
    )
    row.get_by_role("button", name="Mute").click()
    expect(row).to_contain_text("muted")
    assert busy.get(f"/v1/queues/{queue}").json["settings"]["anomalies"]["mute"] == ["dlq_movement"]
    row.get_by_role("button", name="Unmute").click()
    expect(row.get_by_role("button", name="Mute", exact=True)).to_be_visible()
    assert busy.get(f"/v1/queues/{queue}").json["settings"]["anomalies"]["mute"] == []


def test_a_worker_shows_its_types_and_the_leases_that_it_lost(
    busy: Served, open_page: OpenPage
) -> None:
    queue = busy.queue(max_attempts=5)
    id = busy.publish(queue)
    busy.claim(queue, consumer=f"w-{queue}", lease=1)
    until(lambda: busy.get(f"/v1/messages/{id}").json["state"] != "claimed")
    worker = {"host": "box-1", "pid": 1, "queues": [queue], "slots": 4,
              "types": {queue: ["mail.send", "mail.read"]}}  # fmt: skip
    assert busy.put(f"/v1/workers/w-{queue}", worker).status == 204

    def count_lost() -> int:
        found = busy.get("/v1/metrics/consumers", queue=queue, since="-24h").json["consumers"]
        return sum(each["lost"] for each in found)

    until(lambda: count_lost() == 1)
    page = open_page(busy, f"#/workers?queue={queue}")
    row = page.get_by_role("row").filter(has_text=f"w-{queue}")
    expect(row).to_contain_text("mail.read, mail.send")
    expect(row.locator("a.bad")).to_have_text("1")
    expect(page.get_by_role("row")).to_have_count(2)


def test_the_failures_of_a_bulk_action_are_listed(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue(priority_max=5)
    busy.publish(queue)
    sent = {"verb": "reprioritise", "filter": f"queue:{queue} state:ready", "priority": 9}
    id = busy.post("/v1/bulk", sent).json["id"]
    action = until(lambda: find_ended(busy, id))
    (failure,) = action["failures"]
    page = open_page(busy, "#/bulk")
    row = page.get_by_role("row").filter(has_text=f"queue:{queue}")
    row.get_by_role("button", name="1 failed: show which").click()
    detail = page.get_by_role("row").filter(has_text=f"failed: {failure['code']}")
    expect(detail.get_by_role("link", name=failure["id"])).to_be_visible()
    check_accessible(page)


def find_ended(server: Served, id: str) -> Any:
    action = server.get(f"/v1/bulk/{id}").json
    return action if action["state"] == "done" else None


def test_a_bulk_action_is_paused_resumed_and_aborted(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    for number in range(4):
        make_dead(busy, queue, f"ValueError: {number}")
    sent = {"verb": "redrive", "filter": f"queue:{queue} state:dead", "rate": 0.01}
    id = busy.post("/v1/bulk", sent).json["id"]
    page = open_page(busy, "#/bulk")
    row = page.get_by_role("row").filter(has_text=f"queue:{queue}")
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Resume").click()
    expect(row).to_contain_text("running")
    row.get_by_role("button", name="Abort").click()
    page.get_by_role("button", name="Abort 1 action").click()
    expect(row).to_contain_text("aborted")
    assert busy.get(f"/v1/bulk/{id}").json["state"] == "aborted"


def test_the_audit_log_shows_what_changed_and_is_filtered(
    busy: Served, open_page: OpenPage
) -> None:
    queue = busy.queue()
    settings = {"settings": {"lease": 77}}
    assert busy.ask("PATCH", f"/v1/queues/{queue}", settings).status == 200
    page = open_page(busy, f"#/audit?target={queue}")
    row = page.get_by_role("row").filter(has_text="lease").first
    row.get_by_role("button", name="Show what changed").click()
    changes = page.get_by_role("table", name="What changed").get_by_role("row")
    expect(changes.filter(has_text="lease").get_by_role("cell")).to_have_text(["lease", "30", "77"])
    page.get_by_label("Outcome").select_option("refused")
    expect(page.get_by_text("No act was recorded")).to_be_visible()
    page.get_by_label("Outcome").select_option("done")
    expect(row).to_be_visible()
    page.get_by_label("to", exact=True).fill("2020-01-01")
    page.get_by_label("to", exact=True).blur()
    expect(page.get_by_text("No act was recorded")).to_be_visible()


def answer_as_another_version(route: Route) -> None:
    """Answers as a server does that was updated after the page was loaded."""
    reply = route.fetch()
    route.fulfill(response=reply, body=json.dumps({**reply.json(), "version": "99.0.0"}))


def test_a_page_of_another_version_asks_to_be_loaded_again(
    busy: Served, open_page: OpenPage
) -> None:
    def find_banner(page: Page) -> bool:
        return page.get_by_text("The server was updated.").is_visible()

    page = open_page(busy)
    expect(page.get_by_role("button", name="Live")).to_be_visible()
    assert not find_banner(page)
    page.route("**/v1/session", answer_as_another_version)
    page.reload()
    expect(page.get_by_text("The server was updated.")).to_be_visible()
