"""An app on a file and one in memory."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock import Penstock


@pytest.fixture
async def filed(tmp_path: Path) -> AsyncIterator[Penstock]:
    app = Penstock(f"sqlite:///{tmp_path}/queue.db")
    yield app
    await app.aclose()


@pytest.fixture(params=["file", "memory"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Penstock]:
    url = "sqlite://" if request.param == "memory" else f"sqlite:///{tmp_path}/queue.db"
    app = Penstock(url)
    yield app
    await app.aclose()
