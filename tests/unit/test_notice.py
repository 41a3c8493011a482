"""Who is told of work: everyone, one of each group in turn, or always the same."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from penstock.errors import InvalidInput
from penstock.model.message import MICROS_PER_SECOND
from penstock.model.queue import Queue, Scope
from penstock.rules.subscriptions import (
    WebhookSubscription,
    choose_notices,
    choose_subscribers,
)

NOW = 1_000 * MICROS_PER_SECOND
SCOPE = Scope(1, "t", "s")
MODES: list[dict[str, Any]] = [{}, {"mode": "group", "group": "a"}, {"mode": "hash"}]


def make_subscription(number: int, **fields: Any) -> WebhookSubscription:
    given = {"queues": ("mail", "bills"), "min_interval": 5.0, **fields}
    return WebhookSubscription(
        id=f"s{number}", tenant="t", scope="s", url=f"http://host{number}/", **given
    )


def three(**fields: Any) -> list[WebhookSubscription]:
    return [make_subscription(number, **fields) for number in range(3)]


def ids(found: list[WebhookSubscription]) -> list[str]:
    return [each.id for each in found]


def test_everybody_of_a_fanout_is_told() -> None:
    assert ids(choose_subscribers(three(), "mail", NOW)) == ["s0", "s1", "s2"]


def test_one_of_each_group_is_told_in_turn() -> None:
    members = [*three(mode="group", group="a"), make_subscription(7, mode="group", group="b")]
    turns = []
    for step in range(6):
        now = NOW + step * 5 * MICROS_PER_SECOND
        told = choose_subscribers(members, "mail", now)
        turns.append(ids(told))
        members = [replace(m, notified_at={"mail": now}) if m in told else m for m in members]
    assert turns == [["s0", "s7"], ["s1", "s7"], ["s2", "s7"]] * 2


def test_a_group_as_a_whole_hears_of_a_queue_not_too_often() -> None:
    first, second, third = three(mode="group", group="a")
    told = replace(first, notified_at={"mail": NOW})
    assert choose_subscribers([told, second, third], "mail", NOW + 4 * MICROS_PER_SECOND) == []
    assert ids(choose_subscribers([told, second, third], "bills", NOW + 4 * MICROS_PER_SECOND)) == [
        "s1"
    ]
    assert ids(choose_subscribers([told, second, third], "mail", NOW + 5 * MICROS_PER_SECOND)) == [
        "s1"
    ]


def test_the_same_one_is_told_of_the_same_queue() -> None:
    members = three(mode="hash")
    names = [f"queue{number}" for number in range(300)]
    before = {name: ids(choose_subscribers(members, name, NOW))[0] for name in names}
    assert before == {name: ids(choose_subscribers(members[::-1], name, NOW))[0] for name in names}
    counts = Counter(before.values())
    assert set(counts) == {"s0", "s1", "s2"}
    assert min(counts.values()) > 60
    after = {name: ids(choose_subscribers(members[:2], name, NOW))[0] for name in names}
    assert all(after[name] == one for name, one in before.items() if one != "s2")


def test_the_one_that_a_queue_leads_to_is_not_stood_in_for() -> None:
    members = three(mode="hash")
    (one,) = choose_subscribers(members, "mail", NOW)
    rest = [replace(each, notified_at={"mail": NOW}) if each == one else each for each in members]
    assert choose_subscribers(rest, "mail", NOW + MICROS_PER_SECOND) == []


@pytest.mark.parametrize("fields", MODES)
def test_nobody_is_told_faster_than_it_wishes(fields: dict[str, Any]) -> None:
    one = make_subscription(0, notified_at={"bills": NOW}, **fields)
    assert choose_subscribers([one], "mail", NOW + 5 * MICROS_PER_SECOND - 1) == []
    assert choose_subscribers([one], "mail", NOW + 5 * MICROS_PER_SECOND) == [one]


def mark(
    members: list[WebhookSubscription],
    notices: list[tuple[Queue, WebhookSubscription]],
    now: int,
) -> list[WebhookSubscription]:
    about = {each.id: {queue.name: now} for queue, each in notices}
    return [
        replace(each, notified_at={**each.notified_at, **about.get(each.id, {})})
        for each in members
    ]


@pytest.mark.parametrize("fields", MODES)
def test_a_subscriber_is_notified_of_each_of_its_queues_in_turn(fields: dict[str, Any]) -> None:
    queues = [Queue(number, SCOPE, f"q{number}") for number in range(3)]
    members = [make_subscription(0, queues=("q0", "q1", "q2"), **fields)]
    heard = []
    for step in range(6):
        now = NOW + step * 5 * MICROS_PER_SECOND
        notices = choose_notices([(queue, members) for queue in queues], now)
        heard += [queue.name for queue, _ in notices]
        members = mark(members, notices, now)
    assert heard == ["q0", "q1", "q2"] * 2


@pytest.mark.parametrize("fields", MODES)
def test_a_queue_without_work_does_not_take_a_turn(fields: dict[str, Any]) -> None:
    idle, busy = Queue(1, SCOPE, "idle"), Queue(2, SCOPE, "busy")
    one = make_subscription(0, queues=("idle", "busy"), notified_at={"busy": NOW}, **fields)
    later = NOW + 5 * MICROS_PER_SECOND
    assert choose_notices([(busy, [one])], later) == [(busy, one)]
    assert choose_notices([(busy, [one]), (idle, [one])], later) == [(idle, one)]
    assert choose_notices([(busy, [one]), (idle, [one])], later - 1) == []


def test_subscribers_notified_longest_ago_come_first() -> None:
    queue = Queue(1, SCOPE, "mail")
    late, early, never = (
        make_subscription(0, notified_at={"mail": NOW}),
        make_subscription(1, notified_at={"mail": NOW - 1}),
        make_subscription(2),
    )
    found = choose_notices([(queue, [late, early, never])], NOW + 5 * MICROS_PER_SECOND)
    assert [each for _, each in found] == [never, early, late]


@pytest.mark.parametrize(
    "fields", [{"mode": "group"}, {"group": "a"}, {"mode": "hash", "group": "a"}]
)
def test_a_group_has_a_name_and_nothing_else_has(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        make_subscription(0, **fields)
