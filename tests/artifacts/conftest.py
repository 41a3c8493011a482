"""Places for artifacts: a directory, and a bucket of a server that speaks S3."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from penstock.artifacts.storage import ArtifactStorage, open_storage

SECRET = bytes(32)
Shared: TypeAlias = Callable[[bytes], ArtifactStorage]


@pytest.fixture(params=["folder", "bucket"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    """One place, for the store with that secret."""
    where = tmp_path / "files" if request.param == "folder" else request.getfixturevalue("bucket")
    return lambda secret: open_storage(str(where), secret)


@pytest.fixture
def place(shared: Shared) -> ArtifactStorage:
    return shared(SECRET)
