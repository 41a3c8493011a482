"""A SQLite store with messages that wait, ended, failed and were put back."""

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.pipeline.scenes import consume, publish


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"sqlite:///{tmp_path / 'store.db'}"
    publish(made, 30)
    consume(made, 20)
    return made


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.chdir(tmp_path)
    return Terminal(tmp_path, tmp_path / "bytecode")
