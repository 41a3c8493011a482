"""The stores that an app opens, and closes."""

from pathlib import Path

import pytest

from penstock import Penstock
from penstock.errors import StoreError

pytestmark = pytest.mark.anyio


async def test_an_app_whose_store_cannot_be_opened_can_still_be_closed(tmp_path: Path) -> None:
    app = Penstock(f"sqlite:///{tmp_path}/missing/queue.db")
    with pytest.raises(StoreError):
        await app.broker()
    await app.aclose()
