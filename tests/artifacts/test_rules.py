"""What a file may be called, how many there may be, and which of them are seen."""

import unicodedata

import pytest

from penstock.artifacts.rules import (
    Artifact,
    ArtifactLimits,
    DeliveryPrefix,
    check_apart,
    check_limits,
    check_name,
    find_orphans,
    find_visible_prefix,
    make_limits,
    merge_artifacts,
)
from penstock.errors import BodyTooLarge, Conflict, InvalidInput, PenstockError, Refused
from penstock.model.message import PLAIN, HistoryRow, Record, State, StoredMessage, Verb

BAD = (
    "", ".", "..", ".hidden", "../../etc/passwd", "..\\..\\windows", "/etc/passwd", "a/b", "a\\b",
    "C:\\boot.ini", "C:boot.ini", "c:x", "a\x00b", "a\nb", "a\x7fb", "a\x85b", "tail.", "tail ",
    " head", "a\u2028b", "invoice\u202egpj.exe", "\ud800", "e\u0301", "x" * 256, "é" * 128,
)  # fmt: skip
GOOD = (
    "a", "report.pdf", "a..b", "a.tar.gz", "%2e%2e", "a%2Fb", "Übersicht 2026.csv",
    "統計.json", "x" * 255, "é" * 127, "a b (1).txt", "-rf", "~", "ab:c", "C", "a'\"<>|?*#&;$.txt",
)  # fmt: skip
LIMITS = ArtifactLimits(100, 3, 150)


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="artifact name"):
        check_name(name)


@pytest.mark.parametrize("name", [None, 7, b"a"])
def test_a_name_is_a_text(name: object) -> None:
    with pytest.raises(InvalidInput, match="artifact name"):
        check_name(name)


@pytest.mark.parametrize("name", GOOD)
def test_a_plain_name_is_taken_as_it_is(name: str) -> None:
    assert check_name(name) == name


def files(*sizes: int) -> list[Artifact]:
    return [Artifact(f"file-{number}", size) for number, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("listed", "error"),
    [
        (files(50, 50, 50), None),
        (files(1, 1, 1, 1), Refused),
        (files(100, 51), BodyTooLarge),
        ([Artifact("Report.txt", 1), Artifact("report.TXT", 1)], Conflict),
        ([Artifact("straße", 1), Artifact("STRASSE", 1)], Conflict),
        ([Artifact("é", 1), Artifact(unicodedata.normalize("NFD", "é"), 1)], Conflict),
        ([Artifact("a", 1), Artifact("b", 1)], None),
    ],
)
def test_a_message_has_so_many_files_so_many_bytes_and_no_two_alike(
    listed: list[Artifact], error: type[PenstockError] | None
) -> None:
    if error is None:
        check_limits(listed, LIMITS)
        return
    with pytest.raises(error):
        check_limits(listed, LIMITS)


def test_the_same_name_takes_the_place_of_the_old() -> None:
    assert merge_artifacts(files(1, 2), [Artifact("file-1", 9)]) == files(1, 9)
    with pytest.raises(Conflict, match="2 times"):
        check_apart(["a", "b", "a"])


def test_a_message_has_ten_times_the_largest_file() -> None:
    assert make_limits(5) == ArtifactLimits(5, 32, 50)


def row(verb: Verb, state: State, fence: int | None) -> HistoryRow:
    return HistoryRow(1, 7, 1, verb, state, None, None, 1, 1, "me", fence, 0, 0, None, state.final)


def record(*rows: HistoryRow, state: State | None = None) -> Record:
    message = StoredMessage(7, 1, "t", 0, 0, b"", PLAIN)
    return Record(message, state or rows[-1].state, timeline=rows)


NACKED = row(Verb.NACK, State.SCHEDULED, 1)


@pytest.mark.parametrize(
    ("found", "fence"),
    [
        (record(NACKED, row(Verb.COMPLETE, State.COMPLETED, 2)), 2),
        (record(NACKED, row(Verb.FAIL, State.FAILED, 2)), 2),
        (record(row(Verb.REJECT, State.DEAD, 2)), None),
        (record(row(Verb.CANCEL, State.CANCELLED, 2)), None),
        (record(row(Verb.EXPIRE, State.EXPIRED, None)), None),
        (record(NACKED, state=State.CLAIMED), None),
        (record(state=State.READY), None),
    ],
)
def test_files_are_seen_when_a_consumer_ended_the_message_with_them(
    found: Record, fence: int | None
) -> None:
    assert find_visible_prefix(found, "t") == (
        None if fence is None else DeliveryPrefix("t", 7, fence)
    )


SHELVES = [DeliveryPrefix("t", 7, fence) for fence in (1, 2, 3)]


@pytest.mark.parametrize(
    ("found", "fences"),
    [
        (None, [1, 2, 3]),
        (record(NACKED, row(Verb.COMPLETE, State.COMPLETED, 2)), [1, 3]),
        (record(row(Verb.CANCEL, State.CANCELLED, 2)), [1, 2, 3]),
        (record(NACKED, state=State.CLAIMED), [1]),
        (record(NACKED, row(Verb.REJECT, State.DEAD, 2)), [1, 2]),
    ],
)
def test_what_nobody_will_see_is_lost(found: Record | None, fences: list[int]) -> None:
    assert [shelf.fence for shelf in find_orphans(SHELVES, found, "t")] == fences
