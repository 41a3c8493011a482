"""The code map names files that exist, and enough of them."""

from pathlib import Path

from tests.docs.tables import page, tables, word

SOURCE = Path(__file__).parents[2] / "src" / "penstock"
ROWS = tables(page("code-map.md"), "feature")


def test_every_file_of_the_code_map_exists() -> None:
    files = [word(row["file"]) for row in ROWS]
    assert [file for file in files if not (SOURCE / file).exists()] == []


def test_the_code_map_lists_at_least_forty_features() -> None:
    features = [row["feature"] for row in ROWS]
    assert len(set(features)) == len(features) >= 40
