"""What goes wrong around a page: proxies, networks, clocks, other people, and strange names."""

import asyncio
import re
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from playwright.sync_api import Page, expect

from penstock import stores
from penstock.broker.local import Broker
from penstock.model.documents import Document
from tests.cli.terminal import until
from tests.dashboard.conftest import OpenPage
from tests.dashboard.proxy import serve_below
from tests.dashboard.scenery import furnish, make_dead
from tests.dashboard.test_pages import check_accessible
from tests.http.keys import serve_with_auth
from tests.http.served import Served, served
from tests.servers.postgres import Postgres

MAIN_PAGES = {
    "#/overview": "messages died in the last 5 minutes",
    "#/queues/mail": "Longest delay",
    "#/messages?filter=state:dead": "TimeoutError: no answer",
    "#/failures": "TimeoutError: no answer from host-<n>",
    "#/inbox": "Refund 612.40",
    "#/rules?rule=large-orders": "of 8 messages match",
    "#/audit": "Pause a queue",
    "#/analytics": "No message was lost",
}
HOUR = {
    "published": 90, "attempts": 95, "completed": 80, "failures": 15, "dead": 5,
    "failure_rate": 0.157, "wait_p50": 0.2, "wait_p95": 4.0, "run_p50": 0.1, "run_p95": 1.0,
}  # fmt: skip


def sign_in(page: Page, key: str | None) -> None:
    page.get_by_label("API key or token").fill(key or "")
    page.get_by_role("button", name="Sign in").click()


def test_the_main_pages_work_on_postgresql_behind_a_path_and_with_keys(
    postgres_server: Postgres, folder: Path, open_page: OpenPage
) -> None:
    with serve_with_auth(postgres_server.create_database(), folder) as server:
        furnish(server)
        with serve_below(server.port, "/ops/queue") as port:
            proxied = copy(server)
            proxied.port, proxied.prefix = port, "/ops/queue"
            page = open_page(proxied)
            sign_in(page, server.key)
            for path, text in MAIN_PAGES.items():
                page.goto(f"http://127.0.0.1:{port}/ops/queue/{path}")
                expect(page.get_by_text(text).first).to_be_visible()
            expect(page.get_by_role("button", name="Live")).to_be_visible()
            page.goto(f"http://127.0.0.1:{port}/ops/queue/#/queues/orders")
            page.get_by_role("button", name="Pause").click()
            page.get_by_role("button", name="Pause queue").click()
            expect(page.get_by_text("Queue orders is paused.")).to_be_visible()


def test_a_page_without_a_network_says_so_and_recovers(busy: Served, open_page: OpenPage) -> None:
    page = open_page(busy, "#/workers", strict=False)
    expect(page.get_by_role("heading", name="Workers")).to_be_visible()
    page.goto(re.sub("#.*", "#/queues", page.url))
    expect(page.get_by_label("Find a queue")).to_be_visible()
    page.context.set_offline(True)
    page.goto(re.sub("#.*", "#/audit", page.url))
    expect(page.get_by_text("This page could not be loaded.")).to_be_visible()
    page.goto(re.sub("#.*", "#/workers", page.url))
    expect(page.get_by_text("The server cannot be reached.").first).to_be_visible()
    page.context.set_offline(False)
    page.get_by_role("button", name="Try again").first.click()
    expect(page.get_by_text("The server cannot be reached.")).to_have_count(0)


def test_a_store_that_is_away_is_said_and_survived(
    postgres_server: Postgres, folder: Path, open_page: OpenPage
) -> None:
    with served(postgres_server.create_database(), folder) as server:
        queue = server.queue()
        id = server.publish(queue)
        page = open_page(server, f"#/message/{id}", strict=False)
        expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
        other = page.context.new_page()
        other.goto(re.sub("#.*", f"#/messages?filter=queue:{queue}", page.url))
        rows = other.get_by_role("row").filter(has_text=queue)
        expect(rows).to_have_count(1)
        postgres_server.stop()
        try:
            for each in (page, other):
                each.reload()
                expect(each.get_by_role("alert").first).to_contain_text("postgresql://")
        finally:
            postgres_server.start()
        # The pages retry without a click.
        expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
        expect(rows).to_have_count(1)
        expect(page.get_by_role("alert")).to_have_count(0)
        server.publish(queue)
        # A page that reads its list again just then shows the message without asking.
        new = other.get_by_role("button", name="1 new")
        expect(new.or_(rows.nth(1)).first).to_be_visible()
        other.keyboard.press(".")
        expect(rows).to_have_count(2)


def test_an_ended_session_asks_to_sign_in_and_keeps_the_address(
    locked: Served, open_page: OpenPage
) -> None:
    made = locked.post("/v1/keys", {"name": "leaver", "roles": ["viewer"]}).json
    page = open_page(locked, "#/workers")
    sign_in(page, made["key"])
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    assert locked.ask("DELETE", f"/v1/keys/{made['id']}").status == 200
    expect(page.get_by_text("Your session has ended. Sign in again.")).to_be_visible()
    sign_in(page, locked.key)
    expect(page.get_by_role("heading", name="Workers")).to_be_visible()


def test_all_that_match_are_redriven_while_messages_arrive(
    busy: Served, open_page: OpenPage
) -> None:
    queue = busy.queue()
    before = [make_dead(busy, queue, f"TimeoutError: host-{number}") for number in range(5)]
    page = open_page(busy, f"#/messages?filter=state:dead queue:{queue}")
    expect(page.get_by_role("row").filter(has_text=queue)).to_have_count(5)
    expect(page.get_by_role("gridcell", name="1/5", exact=True)).to_have_count(5)
    page.keyboard.press("a")
    # What cannot be done with dead letters is not offered.
    bar = page.get_by_role("toolbar", name="Selected messages")
    expect(bar.get_by_role("button")).to_have_text(
        ["Redrive 5r", "At a rate…", "Move…", "Purge 5", "Clear"]
    )
    bar.get_by_role("button", name="At a rate…").click()
    expect(page.get_by_label("At most per second")).to_be_focused()
    expect(page.get_by_role("dialog").get_by_role("button", name="Redrive 5")).to_be_visible()
    late = busy.publish(queue)
    page.get_by_role("dialog").get_by_role("button", name="Redrive 5").click()
    until(lambda: {busy.state(id) for id in before} == {"ready"})
    assert busy.state(late) == "ready"


def test_two_people_act_on_one_message(busy: Served, open_page: OpenPage) -> None:
    id = make_dead(busy, busy.queue(), "ValueError: no")
    page = open_page(busy, f"#/message/{id}")
    redrive = page.get_by_role("button", name="Redrive")
    expect(redrive).not_to_have_attribute("aria-disabled", "true")
    page.keyboard.press("p")
    assert busy.post(f"/v1/messages/{id}/redrive", {}).status == 200
    redrive.click()
    expect(page.get_by_text(f"message {id} is ready; only dead")).to_be_visible()
    assert busy.state(id) == "ready"
    assert busy.get(f"/v1/messages/{id}").json["redrives"] == 1


def test_a_decision_is_made_on_the_page_of_its_message(busy: Served, open_page: OpenPage) -> None:
    spec = {
        "title": "Pay back?", "self_approval": True,
        "options": [{"id": "yes", "label": "Yes", "kind": "approve"},
                    {"id": "no", "label": "No", "kind": "reject"}],
    }  # fmt: skip
    id = busy.post("/v1/inbox", {"spec": spec}).json["id"]
    page = open_page(busy, f"#/message/{id}")
    expect(page.get_by_role("form", name="Pay back?")).to_be_visible()
    check_accessible(page)
    page.keyboard.press("x")
    expect(page.get_by_text("No: decided.")).to_be_visible()
    assert busy.get(f"/v1/inbox/{id}").json["decision"]["choice"] == "no"


def test_a_browser_with_a_wrong_clock_shows_right_ages(busy: Served, open_page: OpenPage) -> None:
    id = busy.publish(busy.queue())
    page = open_page(busy, "#/bulk")
    page.clock.install(time=datetime.now(UTC) + timedelta(days=3))
    page.goto(re.sub("#.*", "#/overview", page.url))
    page.reload()
    expect(page.get_by_role("heading", name="Queues")).to_be_visible()
    page.goto(re.sub("#.*", f"#/message/{id}", page.url))
    expect(page.get_by_text(re.compile(r"published (just now|\d+ s ago)"))).to_be_visible()


def test_strange_names_are_shown_and_lead_to_their_message(
    busy: Served, open_page: OpenPage
) -> None:
    queue = busy.queue()
    name = "2026/11%2F18 a.b.c é 🎉 " + "x" * 170
    id = busy.publish(queue, name=name, correlation_id="order/90017%20.json")
    page = open_page(busy, f"#/message/{id}")
    expect(page.get_by_text(name)).to_be_visible()
    page.get_by_role("link", name="Open the trace").click()
    expect(page.get_by_role("link", name=id, exact=True).first).to_be_visible()
    page.go_back()
    page.get_by_role("link", name="order/90017%20.json").click()
    expect(page.get_by_role("row").filter(has_text=queue)).to_have_count(1)


def test_the_queue_of_a_subscription_has_a_page(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue(kind="broadcast")
    path = f"/v1/queues/{queue}/subscriptions/mailer"
    assert busy.put(path, {"filter": "type:order.*"}).status in (200, 201)
    busy.publish(queue, type="order.placed")
    page = open_page(busy, "#/queues")
    page.get_by_label("Find a queue").fill(f"{queue}/mailer")
    page.get_by_role("link", name=f"{queue}/mailer", exact=True).click()
    expect(page.get_by_text("type:order.*")).to_be_visible()
    page.get_by_role("link", name="Messages", exact=True).last.click()
    expect(page.get_by_role("row").filter(has_text="order.placed")).to_have_count(1)
    page.go_back()
    page.get_by_role("link", name=queue, exact=True).click()
    expect(page.get_by_role("heading", name="Subscriptions")).to_be_visible()


def test_a_long_name_leaves_room_for_the_figures_of_a_queue(
    busy: Served, open_page: OpenPage
) -> None:
    name = f"{busy.queue()}.{'n' * 100}"
    assert busy.post("/v1/queues", {"name": name}).status == 201
    page = open_page(busy, "#/queues", size=(1440, 900))
    page.get_by_label("Find a queue").fill(name)
    expect(page.get_by_role("row")).to_have_count(2)
    expect(page.get_by_role("columnheader", name="Slots")).to_be_in_viewport()


def test_columns_are_chosen_and_kept(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    busy.publish(queue, correlation_id="order-7")
    page = open_page(busy, f"#/messages?filter=queue:{queue}")
    expect(page.get_by_role("columnheader", name="Type")).to_be_visible()
    page.get_by_role("button", name="Columns").click()
    page.get_by_label("Correlation").check()
    page.get_by_label("Type").uncheck()
    expect(page.get_by_role("gridcell", name="order-7")).to_be_visible()
    page.reload()
    expect(page.get_by_role("gridcell", name="order-7")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Type")).to_have_count(0)


def test_related_messages_are_a_graph_of_links(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    first, second, third = (
        busy.publish(queue, type=name, correlation_id=f"trip-{queue}")
        for name in ("trip.book", "trip.pay", "trip.tell")
    )
    page = open_page(busy, f"#/message/{second}")
    graph = page.get_by_role("group", name=f"Messages related to {second}: 3")
    expect(graph.get_by_role("link")).to_have_count(3)
    graph.get_by_role("link", name=f"tell {third}: ready").click()
    expect(page.get_by_role("heading", name=third)).to_be_visible()
    expect(page.get_by_role("link", name=f"book {first}: ready")).to_be_visible()


def test_a_view_is_saved_found_and_deleted(busy: Served, open_page: OpenPage) -> None:
    queue = busy.queue()
    make_dead(busy, queue, "KeyError: total")
    page = open_page(busy, f"#/messages?filter=state:dead queue:{queue}")
    page.get_by_role("button", name="Save view").click()
    page.get_by_label("Name").fill("missing-totals")
    page.get_by_role("dialog").get_by_role("button", name="Save view").click()
    views = page.get_by_role("list", name="Saved views")
    expect(views).to_contain_text("missing-totals")
    check_accessible(page)
    page.keyboard.press("Escape")
    views.get_by_role("link", name="missing-totals").click()
    expect(page.get_by_role("row").filter(has_text="KeyError: total")).to_have_count(1)
    views.get_by_role("button", name="Delete view missing-totals").click()
    page.get_by_role("button", name="Delete 1 view").click()
    expect(views).to_have_count(0)


def run_apart(work: Coroutine[object, object, None]) -> None:
    """Runs it in another thread, because the browser's event loop runs in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


async def create_queues(url: str, number: int) -> None:
    async with await stores.open(url) as store:
        queues = [{"name": f"q-{each:05d}"} for each in range(number)]
        await Broker(store).topology.apply({"name": "many", "queue": queues})


async def save_results(url: str, queue: str) -> None:
    now = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    hours = [{"hour": now - timedelta(hours=ago), **HOUR} for ago in range(5, 0, -1)]
    found = {"id": "a1", "hour": hours[2]["hour"], "severity": "critical", "kind": "retry_storm",
             "queue": queue, "text": "15 retries in an hour"}  # fmt: skip
    bodies = {
        "metrics": {"queue_id": 1, "queue": queue, "total": HOUR, "hours": hours},
        "anomaly": found,
        "triage": {"id": "t1", "template": "KeyError: total", "count": 5},
    }
    async with await stores.open(url) as store:
        await store.save_documents(
            [Document(kind=kind, name="lake/1", body=msgspec.json.encode(body))
             for kind, body in bodies.items()]
        )  # fmt: skip


def test_analytics_shows_what_the_pipeline_wrote_back(folder: Path, open_page: OpenPage) -> None:
    with served(f"sqlite:///{folder}/analysed.db", folder) as server:
        queue = server.queue()
        run_apart(save_results(server.store, queue))
        page = open_page(server, "#/analytics")
        expect(page.get_by_role("cell", name="15.7 %")).to_be_visible()
        expect(page.get_by_role("cell", name="15 retries in an hour")).to_be_visible()
        expect(page.locator(".chart .mark")).to_have_count(2)
        expect(page.get_by_role("cell", name="KeyError: total")).to_be_visible()
        check_accessible(page)


def test_ten_thousand_queues_are_listed(folder: Path, open_page: OpenPage) -> None:
    with served(f"sqlite:///{folder}/many.db", folder) as server:
        run_apart(create_queues(server.store, 10_000))
        until(lambda: server.get("/v1/overview", limit=1).json["queue_count"] >= 10_000)
        page = open_page(server, "#/overview")
        expect(page.get_by_text("of 10,001 active")).to_be_visible()
        page.goto(re.sub("#.*", "#/queues", page.url))
        page.get_by_label("Find a queue").fill("q-0999")
        expect(page.get_by_role("row")).to_have_count(11)
        page.get_by_label("Find a queue").fill("09999")
        expect(page.get_by_role("link", name="q-09999")).to_be_visible()
