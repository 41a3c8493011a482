"""What the documentation points to exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
PAGES = [*DOCS, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
LINK = re.compile(r"\]\((?!https?:)([^)#]+)[^)]*\)")
FILE = re.compile(r"`((?:src|tests|examples|docs)/[\w/.-]+)`")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_the_page_leads_somewhere(page: Path) -> None:
    links = LINK.findall(page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_the_page_names_exists(page: Path) -> None:
    names = FILE.findall(page.read_text())
    assert [name for name in names if not (ROOT / name).exists()] == []
