"""Every example of the documentation runs, and the runner of examples notices a wrong one."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.examples import run_page

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))]
Run = Callable[[Path], None]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    module = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    monkeypatch.chdir(tmp_path)
    return lambda page: run_page(page, module)


def make_lake(folder: Path) -> None:
    """Of ten messages and three days of metrics, without Spark."""
    from penstock.model.message import Draft
    from penstock.pipeline.extraction.extract import extract
    from penstock.pipeline.lake import lake as lakes
    from penstock.pipeline.lake.delta_log import sync_delta
    from tests.pipeline.made_results import publish_results
    from tests.pipeline.scenes import consume, in_process, on

    url, lake = f"sqlite:///{folder / 'store.db'}", str(folder / "lake")
    on(url, lambda broker: broker.admin.create_queue("mail"))
    drafts = [Draft(queue="mail", body=b'{"n":%d}' % n) for n in range(10)]
    on(url, lambda broker: broker.publish_many(drafts))
    consume(url, 5)
    extract(in_process(), url, lake)
    publish_results(lake, 1, (1, 2, 3))
    sync_delta(lakes.find(lake))


# What a page expects to find in its folder.
FOUND: dict[str, Callable[[Path], None]] = {"docs/how-to/read-the-lake.md": make_lake}


@pytest.mark.parametrize("page", PAGES)
def test_every_example_of_the_page_runs(page: str, run: Run, tmp_path: Path) -> None:
    if page in FOUND:
        FOUND[page](tmp_path)
    run(ROOT / page)


RIGHT = {
    "blocks share their names": "```python\nx = 1\n```\n\n```python\nassert x == 1\n```\n",
    "a block is a script": "```python\nassert __name__ == '__main__'\n```\n",
    "a block may be async": "```python\nimport asyncio\nasyncio.run(asyncio.sleep(0))\n```\n",
    "dots stand for any output": "```console\n$ echo one two\none ...\n$ seq 9\n1\n...\n9\n```\n",
    "output need not be shown": "```console\n$ echo one\n```\n",
    "a failure may be shown": "```console\n$ echo lost; false\nlost\n```\n",
    "a block may be skipped": "<!-- skip: next -->\n\n```python\n1 / 0\n```\n",
    "shell blocks are not run": "```sh\nfalse\n```\n",
}
WRONG = {
    "a python error": "```python\nassert False\n```\n",
    "a titled block": '```python title="mail.py"\nassert False\n```\n',
    "a block after a skipped one": "<!-- skip: next -->\n\n```python\n```\n```python\n1 / 0\n```\n",
    "a warning": "```python\nimport warnings\nwarnings.warn('old')\n```\n",
    "another output": "```console\n$ echo one\ntwo\n```\n",
    "a second output": "```console\n$ echo one\none\n$ echo one\ntwo\n```\n",
    "a silent failure": "```console\n$ false\n```\n",
    "a failure behind dots": "```console\n$ false\n...\n```\n",
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT.keys())
def test_a_right_page_passes(text: str, run: Run, tmp_path: Path) -> None:
    run(write(tmp_path, text))


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_page_fails(text: str, run: Run, tmp_path: Path) -> None:
    page = write(tmp_path, text)
    with pytest.raises((AssertionError, ArithmeticError, UserWarning)):
        run(page)


def write(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page
