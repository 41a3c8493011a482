"""Trouble with a store is one line when it begins, one every 30 s, and one when it ends."""

import threading

from structlog.testing import capture_logs
from structlog.typing import EventDict

from penstock.errors import OutcomeUnknown, StoreBusy, StoreFull, StoreUnreachable, StoreUnusable
from penstock.outage import Outages

AWAY = StoreUnreachable("connection refused")


class Watch:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def read_logs(logs: list[EventDict]) -> list[tuple[str, str, object]]:
    return [(entry["event"], entry["log_level"], entry["seconds"]) for entry in logs]


def test_one_outage_is_one_line_whoever_notices_it() -> None:
    watch = Watch()
    outages = Outages(watch)
    with capture_logs() as logs:
        for second in range(60):
            watch.now = 100.0 + second
            for source in ("fetch", "flush", "heartbeat", "scheduler"):
                outages.report_failure(source, AWAY)
            outages.report_failure("scheduler", OutcomeUnknown("no answer"))
            outages.report_failure("flush", StoreBusy("no connection"))
        watch.now = 166.0
        outages.report_success("registration")
        watch.now = 170.0
        outages.report_success("fetch")
    assert read_logs(logs) == [
        ("store_unreachable", "error", 0.0),
        ("store_unreachable", "error", 30.0),
        ("store_recovered", "warning", 66.0),
    ]


def test_what_fails_late_when_a_store_is_back_is_no_new_outage() -> None:
    watch = Watch()
    outages = Outages(watch)
    with capture_logs() as logs:
        outages.report_failure("fetch", AWAY)
        watch.now += 6
        outages.report_success("fetch")
        outages.report_failure("heartbeat", AWAY)
        watch.now += 1
        outages.report_success("heartbeat")
    assert [entry["event"] for entry in logs] == ["store_unreachable", "store_recovered"]


def test_a_store_that_goes_again_at_once_is_told_when_it_stays_away() -> None:
    watch = Watch()
    outages = Outages(watch)
    with capture_logs() as logs:
        outages.report_failure("fetch", AWAY)
        outages.report_success("fetch")
        for _ in range(7):
            outages.report_failure("fetch", AWAY)
            watch.now += 1
    assert read_logs(logs)[2:] == [("store_unreachable", "error", 5.0)]


def test_a_full_disk_is_over_where_it_was_noticed() -> None:
    """Reading goes on meanwhile."""
    outages = Outages(Watch())
    with capture_logs() as logs:
        outages.report_failure("flush", StoreFull("no room"))
        outages.report_failure("flush", StoreFull("no room"))
        outages.report_success("fetch")
        outages.report_failure("flush", StoreBusy("locked"))
        outages.report_success("flush")
    assert [(entry["event"], entry["source"]) for entry in logs] == [
        ("store_failing", "flush"),
        ("store_recovered", "flush"),
    ]


def test_a_removed_file_is_one_line_whoever_notices_it() -> None:
    watch = Watch()
    outages = Outages(watch)
    with capture_logs() as logs:
        for second in range(60):
            watch.now = 100.0 + second
            for source in ("fetch", "historian", "scheduler"):
                outages.report_failure(source, StoreUnusable("the file was removed"))
        # It never failed: what it reads is not damaged.
        outages.report_success("registration")
        watch.now = 166.0
        outages.report_success("scheduler")
        outages.report_success("fetch")
    assert read_logs(logs) == [
        ("store_failing", "error", 0.0),
        ("store_failing", "error", 30.0),
        ("store_recovered", "warning", 66.0),
    ]


def test_threads_that_notice_it_at_once_are_one_line() -> None:
    outages = Outages()
    barrier = threading.Barrier(8)

    def notice() -> None:
        barrier.wait()
        outages.report_failure("heartbeat", AWAY)

    with capture_logs() as logs:
        threads = [threading.Thread(target=notice) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(logs) == 1
