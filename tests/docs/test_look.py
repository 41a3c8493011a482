"""How the documentation looks: its menu, its style and its first sentences."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SETTINGS = (ROOT / "mkdocs.yml").read_text()


def test_code_in_tables_is_not_broken_inside_words() -> None:
    (style,) = re.findall(r"- (\S+\.css)", SETTINGS)
    rule = (DOCS / style).read_text().partition("td code")[2].partition("}")[0]
    assert "white-space: nowrap" in rule


def test_pages_have_dark_mode_a_copy_button_and_neighbours() -> None:
    for feature in ("content.code.copy", "navigation.footer", "scheme: slate"):
        assert feature in SETTINGS


def test_the_menu_is_grouped_and_has_one_entry_for_decisions() -> None:
    menu = SETTINGS.partition("\nnav:\n")[2]
    groups = re.split(r"^  - .*:$", menu, flags=re.MULTILINE)
    assert len(groups) > 6
    assert all(group.count(".md") <= 16 for group in groups)
    assert re.findall(r"decisions/\S+", menu) == ["decisions/index.md"]


def test_concepts_begin_with_the_life_of_a_message() -> None:
    text = (DOCS / "concepts.md").read_text()
    assert text.startswith("# Concepts\n\n## The life of a message\n")


def test_benchmarks_say_where_the_shortfalls_are() -> None:
    introduction = (DOCS / "benchmarks.md").read_text().partition("\n## ")[0]
    assert "what falls short, and why" in introduction
