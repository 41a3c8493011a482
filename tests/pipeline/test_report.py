"""The report says first what an operator should know, and where it is from."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.pipeline.periods import HOUR
from penstock.pipeline.report.data import ReportData, make_empty_row
from penstock.pipeline.report.page import render_page
from penstock.pipeline.report.verdict import find_concerns, group_by_cause
from penstock.rules.anomaly_text import format_place, format_seconds, shorten

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
NOW = NOON.timestamp()
LATEST = int(NOW) * 1_000_000
QUIET = ReportData(
    lake="/data/lake",
    store="postgresql://db.example/queue",
    made_at=LATEST,
    reached=LATEST,
    hours=(int(NOW),),
    queues={},
    by_queue={},
    totals={},
    overall={},
    total=make_empty_row(),
    backlog={},
    consumers=[],
    anomalies=[],
    clusters=[],
)


def failing(rate: float) -> ReportData:
    return replace(QUIET, total=make_empty_row() | {"attempts": 1_000, "failure_rate": rate})


def growing(first: int, last: int, published: int) -> ReportData:
    minutes = [
        {"minute": NOON, "arrived": 5, "left": 2, "backlog": first + 3, "dead": 0},
        {"minute": NOON + timedelta(hours=1), "arrived": 0, "left": 0, "backlog": last, "dead": 0},
    ]  # fmt: skip
    return replace(QUIET, backlog={1: minutes}, total=make_empty_row() | {"published": published})


def odd(*kinds: tuple[str, str]) -> ReportData:
    rows = [
        {"severity": severity, "kind": kind, "queue_id": 1, "queue": "mail", "type": "letter",
         "consumer": None, "hour": NOON, "message_id": 7, "count": 3, "value": 2.0,
         "threshold": 1.0}
        for severity, kind in kinds
    ]  # fmt: skip
    return replace(QUIET, anomalies=rows)


@pytest.mark.parametrize(
    ("told", "concerns"),
    [
        (QUIET, []),
        (failing(0.04), []),
        (failing(0.19), [("warning", "19 % of attempts failed")]),
        (failing(0.34), [("critical", "34 % of attempts failed")]),
        (growing(0, 99, 100), []),
        (growing(500, 600, 10_000), []),
        (growing(500, 1_700, 10_000), [("warning", "the backlog grew by 1,200 messages")]),
        (growing(0, 6_000, 10_000), [("critical", "the backlog grew by 6,000 messages")]),
        (growing(6_000, 0, 10_000), []),
        (odd(("info", "flash_message")), []),
        (
            odd(("warning", "slow_processing"), ("critical", "dlq_movement")),
            [("critical", "dlq movement"), ("warning", "slow processing")],
        ),
    ],
)
def test_concerns_are_failures_backlog_and_anomalies(
    told: ReportData, concerns: list[tuple[str, str]]
) -> None:
    assert [(each.severity, each.text) for each in find_concerns(told, NOW)] == concerns


def test_old_data_is_a_concern() -> None:
    day = 24 * HOUR
    assert find_concerns(QUIET, NOW + day) == []
    (concern,) = find_concerns(QUIET, NOW + 3 * day)
    assert (concern.severity, concern.text) == ("warning", "the newest data is 3.0 d old")


@pytest.mark.parametrize(
    ("told", "banner"),
    [
        (QUIET, '"verdict fine"><b>All normal</b>'),
        (failing(0.19), '"verdict warning"><b>Check soon:</b> 19 % of attempts failed<'),
        (
            replace(failing(0.34), anomalies=odd(("warning", "zombie_message")).anomalies),
            '"verdict critical"><b>Needs attention:</b> 34 % of attempts failed, zombie message<',
        ),
    ],
)
def test_the_banner_names_every_concern(told: ReportData, banner: str) -> None:
    assert banner in render_page(told, NOW)


def test_the_page_names_store_and_lake_and_how_old_the_data_is() -> None:
    told = render_page(QUIET, NOW + 90 * 60)
    assert "<title>Penstock report: postgresql://db.example/queue</title>" in told
    assert "Store <code>postgresql://db.example/queue</code>" in told
    assert "lake <code>/data/lake</code>" in told
    assert "Updated 05 Jan 2026 12:00 UTC. The newest data is 90 min old" in told


def cluster(fingerprint: str, count: int, **other: Any) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint, "template": f"error {fingerprint}", "queue_id": 1,
        "queue": "mail", "type": "letter", "count": count, "messages": count, "dead": 0,
        "last_at": NOON, "message_id": count, "attributes": [], **other,
    }  # fmt: skip


def test_a_cause_is_one_over_days_and_queues() -> None:
    rows = [
        cluster("b", 7),
        cluster("a", 5, queue_id=2, queue="fax"),
        cluster("a", 4, last_at=NOON - timedelta(days=1)),
        cluster("a", 3, dead=1),
    ]
    causes = group_by_cause(rows)
    assert [(cause.template, cause.count) for cause in causes] == [("error a", 12), ("error b", 7)]
    assert [
        (each.name, each.count, each.dead, each.newest["message_id"]) for each in causes[0].places
    ] == [("mail / letter", 7, 1, 3), ("fax / letter", 5, 0, 5)]


def test_the_page_has_each_cause_once_with_commands_to_look_closer() -> None:
    rows = [cluster("a", 5, queue_id=n, queue=f"q{n}", message_id=n) for n in range(1, 8)]
    told = render_page(replace(odd(("critical", "dlq_movement")), clusters=rows), NOW)
    assert told.count("<code>error a</code>") == 1
    assert '<td class="count">35<' in told
    assert re.findall(r"<code>penstock show (\d+)</code>", told) == ["7", "1", "2", "3", "4", "5"]
    assert "q1 / letter: 5 failures of 5 messages, last 05 Jan 12:00" in told
    assert "and 2 more queues and types" in told


def test_long_types_are_short_and_still_differ() -> None:
    one, other = (f"com.example.{'very.' * 20}LetterSent{n}" for n in (1, 2))
    assert format_place({"queue": "mail", "type": one}) != format_place(
        {"queue": "mail", "type": other}
    )
    assert len(shorten(one)) == 40
    assert shorten("letter") == "letter"


def test_times_have_the_same_digits() -> None:
    assert [format_seconds(each) for each in (3, 2.88, 9.96, 12.34)] == [
        "3.0 s",
        "2.9 s",
        "10 s",
        "12 s",
    ]
