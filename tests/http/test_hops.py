"""How many files a request crosses on its way to the store."""

import sys
from pathlib import Path
from types import FrameType

import pytest

import penstock
from penstock.http import create_app
from tests.http.asgi_client import AsgiClient, lifespan

pytestmark = pytest.mark.anyio

SOURCE = Path(penstock.__file__).parent
MAX_HOPS = 6


def list_files(frame: FrameType | None) -> list[str]:
    """The files of the package whose functions wait for this one, in the order of the calls."""
    found: list[str] = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(SOURCE):
            found.append(str(path.relative_to(SOURCE)))
        frame = frame.f_back
    return list(dict.fromkeys(reversed(found)))


async def test_a_publish_crosses_at_most_six_files_to_the_store(tmp_path: Path) -> None:
    crossed: list[list[str]] = []
    stores = str(SOURCE / "stores")

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(stores):
            files = list_files(frame)
            if files[0] == "http/mount.py":
                crossed.append(files)

    app = create_app(f"sqlite:///{tmp_path}/queue.db")
    async with lifespan(app):
        client = AsgiClient(app)
        assert (await client.post("/v1/queues", {"name": "mail"})).status == 201
        sys.setprofile(note)
        try:
            reply = await client.post("/v1/publish", {"queue": "mail", "body": 1})
        finally:
            sys.setprofile(None)
    assert reply.status == 201
    assert crossed
    assert crossed[0][-1].startswith("stores/sqlite/")
    assert len(crossed[0]) <= MAX_HOPS, crossed[0]
