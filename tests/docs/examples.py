"""Runs the examples of a documentation page, as its reader would."""

import doctest
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from unittest import SkipTest

from sybil import Document, Example, Region
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import SkipParser
from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer
from sybil.typing import Evaluator

ROOT = Path(__file__).parents[2]
FENCES = RawFencedCodeBlockLexer(re.compile(r"(?P<language>\w+)[^\n]*\n"))
COMMAND = re.compile(r"^\$ (?P<command>.*)\n(?P<shown>(?:(?!\$ ).*\n)*)", re.MULTILINE)


def run_page(page: Path, module: ModuleType) -> None:
    """Run the python and console blocks of a page in order, all in one module."""
    document = Document.parse(str(page), parse_blocks, SkipParser())
    document.namespace = module.__dict__
    for example in document.examples():
        with suppress(SkipTest):
            example.evaluate()


def parse_blocks(document: Document) -> Iterator[Region]:
    evaluators: dict[str, Evaluator] = {"python": PythonEvaluator(), "console": run_console}
    for block in FENCES(document):
        if evaluator := evaluators.get(block.lexemes["language"]):
            yield Region(block.start, block.end, block.lexemes["source"], evaluator)


def run_console(example: Example) -> str | None:
    """Run each `$ command`; say what differs from the output shown below it, if any is shown."""
    differences = (differ(*found.groups()) for found in COMMAND.finditer(example.parsed))
    return next(filter(None, differences), None)


def differ(command: str, shown: str) -> str | None:
    ran = subprocess.run(
        command,
        shell=True,
        check=False,
        # Pages on crash tests run modules of the repository.
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=150,
    )
    # A page may show a failure, but only in the words of that failure.
    if ran.returncode and not shown.strip(". \n"):
        return f"$ {command}\nexit code {ran.returncode}\n{ran.stdout}"
    if shown.strip() and not matches(shown, ran.stdout):
        return f"$ {command}\nshown:\n{shown}\nprinted:\n{ran.stdout}"
    return None


def matches(shown: str, printed: str) -> bool:
    checker = doctest.OutputChecker()
    return checker.check_output(shown.rstrip() + "\n", printed.rstrip() + "\n", doctest.ELLIPSIS)
