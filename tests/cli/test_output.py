"""How things are printed: what is cut, what never is, and how times are told."""

import pytest

from penstock.cli.output import (
    cut,
    decode_body,
    format_ago,
    format_duration,
    format_time,
    print_table,
    to_one_line,
)

SECOND = 1_000_000


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")


def test_only_the_last_column_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("id", "name", "error"), [(1, "a-long-name", "x" * 60), (20, "b", None)], "nothing")
    assert capsys.readouterr().out.splitlines() == [
        "ID  NAME         ERROR",
        f" 1  a-long-name  {'x' * 22}…",
        "20  b",
    ]


def test_a_name_wider_than_the_screen_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "error"), [("n" * 50, "e" * 50)], "nothing")
    assert capsys.readouterr().out.splitlines()[1] == f"{'n' * 50}  {'e' * 15}…"


def test_a_pipe_is_wide(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    print_table(("id", "error"), [(1, "e" * 150)], "nothing")
    assert "e" * 150 in capsys.readouterr().out


def test_an_empty_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("id",), [], "no messages")
    assert capsys.readouterr().out == "no messages\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (7_199, "120m"), (7_200, "2h"), (172_800, "2d")],
)
def test_lengths_of_time_are_short(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_moments_are_told_from_the_stores_now() -> None:
    assert format_ago(90 * SECOND, 100 * SECOND) == "10s"
    assert format_ago(400 * SECOND, 100 * SECOND) == "in 5m"
    assert format_ago(None, 100 * SECOND) is None


def test_moments_for_programs_keep_their_microseconds() -> None:
    assert format_time(1_700_000_000_000_001) == "2023-11-14T22:13:20.000001Z"
    assert format_time(None) is None


def test_texts_become_one_printable_line() -> None:
    assert to_one_line("a\n b\tc") == "a b c"
    assert to_one_line("\x1b[1m") == "\N{REPLACEMENT CHARACTER}[1m"
    assert cut("abcdef", 4) == "abc…"


def test_a_body_is_json_or_text_or_hex() -> None:
    bodies = [None, b'{"a":1}', b"plain", b"\xff"]
    assert [decode_body(body) for body in bodies] == [None, {"a": 1}, "plain", "ff"]
