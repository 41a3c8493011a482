"""The pages for users of the five systems name routes, commands and settings that exist."""

import re
from pathlib import Path

import click
import msgspec
import pytest

from penstock.cli.main import main, queuectl
from penstock.cli.settings import Settings
from penstock.http.routes import OPERATIONS

FOLDER = Path(__file__).parents[2] / "docs" / "how-to" / "coming-from"
PAGES = sorted(FOLDER.glob("*.md"), key=lambda page: page.name)
ROUTE = re.compile(r"`(GET|POST|PUT|PATCH|DELETE) (/v1/[^`? ]*)")
COMMAND = re.compile(r"\b(penstock|queuectl) ((?:[a-z]+ ?)+)")
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
FOREIGN = ("/v1/codeq/", "/v1/accounts/lookup")


def list_served() -> set[tuple[str, str]]:
    return {(each.method, each.path.replace(":path}", "}")) for each in OPERATIONS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_route_of_the_page_exists(page: Path) -> None:
    named = {found for found in ROUTE.findall(page.read_text()) if not found[1].startswith(FOREIGN)}
    assert named - list_served() == set()


def find_command(program: str, words: list[str]) -> bool:
    """Tells whether the words begin with a command of the program."""
    group: click.Command | None = main if program == "penstock" else queuectl
    for word in words:
        if not isinstance(group, click.Group):
            return True
        group = group.get_command(click.Context(group), word)
    return group is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_the_page_exists(page: Path) -> None:
    code = " ".join(
        re.findall(r"`[^`\n]+`|^\$ .*$|^(?:penstock|queuectl) .*$", page.read_text(), re.M)
    )
    named = {(program, tuple(words.split())) for program, words in COMMAND.findall(code)}
    assert [each for each in named if not find_command(each[0], list(each[1]))] == []


def test_every_server_option_that_the_page_of_codeq_names_exists() -> None:
    known = {each.name.replace("_", "-") for each in msgspec.structs.fields(Settings)}
    assert set(FLAG.findall((FOLDER / "codeq.md").read_text())) <= known
