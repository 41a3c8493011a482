"""Histories written by hand: odd but legal ones, and the smallest illegal ones."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.checker import (
    Answer,
    Cancel,
    Claim,
    Claimed,
    End,
    Kind,
    Publish,
    Queue,
    Redrive,
    Row,
    Settle,
    Signal,
    Stored,
    assemble,
    check,
)
from tests.checker.events import AnyCall, AnyLine, Invoke, Result

OK = Answer("ok")
UNKNOWN = Answer("unknown")
REPEATED = Answer("refused", "ALREADY_SETTLED")
SECOND = 1_000_000
# Past, to come, never and absent: the dump is made at 100 s.
DUE = (90 * SECOND, 200 * SECOND, 2**53 - 1, None)


class Tale:
    """One clock for all, in seconds; every call is its own process."""

    def __init__(self) -> None:
        self.lines: list[AnyLine] = []

    def call(self, start: float, end: float, call: AnyCall, answer: Answer = OK) -> None:
        name = f"p{len(self.lines)}"
        self.lines.append(Invoke(name, 0, int(start * 1e9), call))
        self.lines.append(Result(name, 0, int(end * 1e9), answer))

    def publish(self, start: float, end: float, id: int, key: str | None = None) -> None:
        self.call(start, end, Publish(f"m{id}", "work", key), Answer("ok", id=id))

    def claim(self, start: float, end: float, id: int, fence: int, deliveries: int = 1) -> None:
        """Done as soon as it was asked, for a lease of ten seconds."""
        at = int(start * SECOND)
        handed = Claimed(id, f"m{id}", fence, 0, deliveries, at, at + 10 * SECOND)
        self.call(start, end, Claim("work"), Answer("ok", claims=(handed,)))

    def verdict(self, *final: Stored | Queue) -> set[Kind]:
        end = End(0, 100 * SECOND, sum(isinstance(line, Stored) for line in final))
        return set(check(assemble([*self.lines, *final, end])).counts)


def make_stored(id: int, state: str, rows: Sequence[Row], attempts: int = 1) -> Stored:
    fences = [row for row in rows if row.fence]
    return Stored(id, f"m{id}", "work", state, attempts, len(fences), tuple(rows))


def row(verb: str, state: str, fence: int | None, at: float, final: bool = False) -> Row:
    return Row(verb, state, fence, int(at * SECOND), final)


def make_completed(id: int, fence: int, at: float) -> Stored:
    return make_stored(id, "completed", [row("complete", "completed", fence, at, True)])


def test_a_plain_life_is_legal() -> None:
    tale = Tale()
    tale.publish(0, 1, 1)
    tale.claim(2, 3, 1, 1)
    tale.call(4, 5, Settle("complete", 1, 1))
    assert tale.verdict(make_completed(1, 1, 4.5)) == set()


def test_a_complete_whose_first_answer_got_lost_inside_the_client_is_legal() -> None:
    tale = Tale()
    tale.publish(0, 1, 1)
    tale.claim(2, 3, 1, 1)
    tale.call(4, 9, Settle("complete", 1, 1), REPEATED)
    assert tale.verdict(make_completed(1, 1, 4.5)) == set()


def test_a_repeat_that_was_never_done_has_a_gap() -> None:
    tale = Tale()
    tale.publish(0, 1, 1)
    tale.claim(2, 3, 1, 1)
    tale.call(4, 9, Settle("nack", 1, 1), REPEATED)
    tale.claim(20, 21, 1, 2, 2)
    tale.call(22, 23, Settle("complete", 1, 2))
    rows = [row("reclaim", "ready", 1, 13), row("complete", "completed", 2, 22, True)]
    assert tale.verdict(make_stored(1, "completed", rows)) == {Kind.HISTORY_GAP}


def test_a_complete_after_the_end_of_its_lease_is_legal_before_the_reclaim() -> None:
    tale = Tale()
    tale.publish(0, 1, 1)
    tale.claim(2, 3, 1, 1)
    tale.call(40, 41, Settle("complete", 1, 1))
    assert tale.verdict(make_completed(1, 1, 40.5)) == set()


def test_an_unknown_complete_that_won_is_legal_and_ends_the_message() -> None:
    tale = Tale()
    tale.publish(0, 1, 1)
    tale.claim(2, 3, 1, 1)
    tale.call(4, 5, Settle("complete", 1, 1), UNKNOWN)
    assert tale.verdict(make_completed(1, 1, 6)) == set()
    tale.claim(20, 21, 1, 2, 2)
    assert Kind.REDELIVERED_AFTER_ACK in tale.verdict(make_completed(1, 1, 6))


def test_a_claim_answered_after_its_message_died_holds_no_key() -> None:
    """The worker of message 1 was stopped before its answer came."""
    tale = Tale()
    tale.publish(0, 1, 1, "key")
    tale.publish(2, 3, 2, "key")
    tale.claim(4, 30, 1, 1)
    tale.claim(25, 26, 2, 2)
    tale.call(40, 41, Settle("complete", 2, 2))
    dead = make_stored(1, "dead", [row("reclaim", "dead", 1, 14)], 0)
    assert tale.verdict(dead, make_completed(2, 2, 40), Queue("work", max_deliveries=1)) == set()


def test_a_late_unknown_settle_does_not_prove_that_a_key_was_held() -> None:
    tale = Tale()
    tale.publish(0, 1, 1, "key")
    tale.publish(2, 3, 2, "key")
    tale.claim(4, 5, 1, 1)
    tale.claim(25, 26, 2, 2)
    tale.call(30, 31, Settle("reject", 1, 1), UNKNOWN)
    tale.call(40, 41, Settle("complete", 2, 2))
    dead = make_stored(1, "dead", [row("reclaim", "dead", 1, 14)], 0)
    assert tale.verdict(dead, make_completed(2, 2, 40), Queue("work", max_deliveries=1)) == set()


def test_publishes_side_by_side_may_be_served_in_any_order() -> None:
    tale = Tale()
    tale.publish(0, 10, 1, "key")
    tale.publish(1, 2, 2, "key")
    tale.claim(3, 4, 2, 1)
    tale.call(5, 6, Settle("complete", 2, 1))
    tale.claim(11, 12, 1, 2)
    tale.call(13, 14, Settle("complete", 1, 2))
    assert tale.verdict(make_completed(2, 1, 5), make_completed(1, 2, 13)) == set()


def test_publishes_one_after_the_other_may_not() -> None:
    tale = Tale()
    tale.publish(0, 0.5, 1, "key")
    tale.publish(1, 2, 2, "key")
    tale.claim(3, 4, 2, 1)
    tale.call(5, 6, Settle("complete", 2, 1))
    tale.claim(11, 12, 1, 2)
    tale.call(13, 14, Settle("complete", 1, 2))
    assert tale.verdict(make_completed(2, 1, 5), make_completed(1, 2, 13)) == {Kind.ORDER}


def test_a_redriven_copy_need_not_wait_for_the_due_time_of_its_original() -> None:
    tale = Tale()
    tale.call(0, 1, Publish("m1", "work", due_at=90 * SECOND), Answer("ok", id=1))
    tale.call(2, 3, Cancel(1), Answer("ok", state="cancelled"))
    tale.call(4, 5, Redrive(1), Answer("ok", id=2))
    handed = Claimed(2, "m1", 1, 0, 1, 6 * SECOND, 16 * SECOND)
    tale.call(6, 7, Claim("work"), Answer("ok", claims=(handed,)))
    tale.call(8, 9, Settle("complete", 2, 1))
    original = make_stored(1, "cancelled", [row("cancel", "cancelled", None, 2.5, True)])
    done = (row("complete", "completed", 1, 8, True),)
    copy = Stored(2, "m1", "work", "completed", 1, 1, done, parent=1)
    assert tale.verdict(original, copy) == set()


def test_a_message_that_overflowed_is_due_at_once_when_redriven() -> None:
    tale = Tale()
    tale.call(0, 1, Publish("m1", "work", due_at=90 * SECOND), Answer("ok", id=1))
    tale.call(4, 5, Redrive(1), Answer("ok", id=1))
    tale.claim(6, 7, 1, 1)
    tale.call(8, 9, Settle("complete", 1, 1))
    rows = [
        row("publish", "dead", None, 0.5),
        row("redrive", "ready", None, 4.5),
        row("complete", "completed", 1, 8, True),
    ]
    assert tale.verdict(make_stored(1, "completed", rows)) == set()


def test_a_forced_cancel_fences_the_worker() -> None:
    tale = Tale()
    tale.publish(0, 1, 1)
    tale.claim(2, 3, 1, 1)
    tale.call(4, 5, Cancel(1, force=True), Answer("ok", state="cancelled"))
    tale.call(6, 7, Settle("extend", 1, 1))
    gone = make_stored(1, "cancelled", [row("cancel", "cancelled", 1, 4.5, True)], 0)
    assert tale.verdict(gone) == {Kind.STALE_FENCE_ACCEPTED}


def test_a_batch_may_lack_what_was_refused_and_nothing_else() -> None:
    tale = Tale()
    for id, answer in (1, Answer("ok", id=1)), (2, Answer("refused", "QUEUE_FULL")):
        tale.call(0, 1, Publish(f"m{id}", "work", batch="b"), answer)
    tale.claim(2, 3, 1, 1)
    tale.call(4, 5, Settle("complete", 1, 1))
    assert tale.verdict(make_completed(1, 1, 4.5)) == set()
    tale.call(0, 1, Publish("m3", "work", batch="b"), UNKNOWN)
    assert tale.verdict(make_completed(1, 1, 4.5)) == {Kind.BATCH_TORN}


def test_only_what_is_due_later_may_still_wait() -> None:
    tale = Tale()
    tale.publish(0, 1, 1)
    tale.claim(2, 3, 1, 1)
    tale.call(4, 5, Settle("complete", 1, 1))
    tale.publish(0, 1, 2)
    waiting = [Stored(2, "m2", "work", "scheduled", 0, 0, due_at=due_at) for due_at in DUE]
    found = [tale.verdict(make_completed(1, 1, 4.5), stored) for stored in waiting]
    assert found == [{Kind.STUCK}, set(), {Kind.STUCK}, {Kind.STUCK}]


def test_what_was_published_once_more_by_itself_does_not_tear_its_batch() -> None:
    tale = Tale()
    for label in ("m1", "m2"):
        tale.call(0, 1, Publish(label, "work", batch="both"), UNKNOWN)
    tale.call(2, 3, Publish("m1", "work"), Answer("ok", id=1))
    dead = make_stored(1, "dead", [row("publish", "dead", None, 2.5)], attempts=0)
    assert Kind.BATCH_TORN not in tale.verdict(dead)


def tell_wait(wait: Settle, answer: Answer, resumed_at: float) -> Tale:
    """Message 1 waits at 4 s, and runs again to its end; message 2 completes at 13 s."""
    tale = Tale()
    tale.publish(0, 1, 1)
    tale.publish(0, 1, 2)
    tale.claim(2, 3, 1, 1)
    tale.call(4, 5, wait, answer)
    tale.claim(resumed_at, resumed_at + 1, 1, 3)
    tale.call(resumed_at + 2, resumed_at + 3, Settle("complete", 1, 3))
    tale.claim(10, 11, 2, 2)
    tale.call(13, 14, Settle("complete", 2, 2))
    return tale


def judge_wait(tale: Tale, resumed_at: float) -> set[Kind]:
    rows = [
        row("wait", "scheduled", 1, 4.5),
        row("complete", "completed", 3, resumed_at + 2, True),
    ]
    return tale.verdict(replace(make_stored(1, "completed", rows), deliveries=1),
                        make_completed(2, 2, 13))  # fmt: skip


@pytest.mark.parametrize(("resumed_at", "found"), [(31, set()), (29, {Kind.RESUMED_EARLY})])
def test_a_sleep_lasts_until_it_is_due(resumed_at: float, found: set[Kind]) -> None:
    answer = Answer("ok", due_at=30 * SECOND)
    tale = tell_wait(Settle("wait", 1, 1), answer, resumed_at)
    assert judge_wait(tale, resumed_at) == found


@pytest.mark.parametrize(
    ("name", "at", "answer", "found"),
    [
        ("go", 6, OK, set()),
        ("go", 6, UNKNOWN, set()),
        ("go", 24, OK, {Kind.RESUMED_EARLY}),
        ("go", 6, Answer("refused", "SIGNALS_FULL"), {Kind.RESUMED_EARLY}),
        ("other", 6, OK, {Kind.RESUMED_EARLY}),
    ],
)
def test_a_wait_for_a_signal_lasts_until_it_is_sent(
    name: str, at: float, answer: Answer, found: set[Kind]
) -> None:
    tale = tell_wait(Settle("wait", 1, 1, signal="go"), OK, 20)
    tale.call(at, at + 1, Signal(1, name), answer)
    assert judge_wait(tale, 20) == found


@pytest.mark.parametrize(("resumed_at", "found"), [(20, set()), (12, {Kind.RESUMED_EARLY})])
def test_a_wait_for_messages_lasts_until_all_have_ended(
    resumed_at: float, found: set[Kind]
) -> None:
    tale = tell_wait(Settle("wait", 1, 1), Answer("ok", awaits=(2,)), resumed_at)
    assert judge_wait(tale, resumed_at) == found


def test_a_wait_that_never_ends_is_stuck() -> None:
    tale = Tale()
    tale.publish(0, 1, 1)
    tale.claim(2, 3, 1, 1)
    tale.call(4, 5, Settle("wait", 1, 1, signal="go"))
    waiting = [row("wait", "scheduled", 1, 4.5)]
    left = replace(make_stored(1, "scheduled", waiting, 0), deliveries=0, due_at=2**53 - 1)
    assert tale.verdict(left) == {Kind.STUCK}


def test_a_delivery_that_waited_completes_nothing() -> None:
    tale = Tale()
    tale.publish(0, 1, 1)
    tale.claim(2, 3, 1, 1)
    tale.call(4, 5, Settle("wait", 1, 1))
    tale.call(6, 7, Settle("complete", 1, 1))
    rows = [row("wait", "scheduled", 1, 4.5), row("complete", "completed", 1, 6, True)]
    assert {Kind.STALE_FENCE_ACCEPTED, Kind.ENDED_TWICE} <= tale.verdict(
        make_stored(1, "completed", rows)
    )
