"""A terminal in an empty directory."""

from pathlib import Path

import pytest

from tests.cli.terminal import Terminal


@pytest.fixture(scope="session")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bytecode")


@pytest.fixture
def terminal(tmp_path: Path, bytecode: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.chdir(tmp_path)
    return Terminal(tmp_path, bytecode)
