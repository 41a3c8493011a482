"""Artifacts over HTTP."""

import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import aiohttp
import msgspec

from penstock.artifacts.rules import Artifact, check_name
from penstock.artifacts.service import Source
from penstock.artifacts.upload import Content, Upload, check_content
from penstock.broker.interfaces.broker import Held
from penstock.client.admin import message_path
from penstock.client.mapping import FenceLedger
from penstock.client.transport import RemoteGroup, Transport
from penstock.errors import NotFound
from penstock.wire.consume import ArtifactsView, ArtifactView

CHUNK_BYTES = 262_144
PREFIX = "penstock-upload-"


class RemoteArtifacts(RemoteGroup):
    """The verbs of `Artifacts`, of a server."""

    def __init__(self, transport: Transport, ledger: FenceLedger) -> None:
        super().__init__(transport)
        self.ledger = ledger

    async def attach(self, held: Held, name: str, content: Source) -> Artifact:
        """Uploads a file. It becomes visible when this delivery completes or fails the message."""
        check_name(name)
        if not hasattr(content, "__aiter__"):
            check_content(name, content)
        token = self.ledger.tokens.get((held.id, held.fence))
        if token is None:
            raise NotFound(
                f"message {held.id} was not claimed by this client or is already settled"
            )
        path = f"/v1/artifacts/{quote(token, safe='')}/{quote(name, safe='')}"
        if isinstance(content, Path):
            with content.open("rb") as file:
                return await self._put(path, file)
        return await self._put(path, content)

    def spool(self, name: str, content: Content) -> Upload:
        """Writes the content to a temporary file to attach later. The server checks limits."""
        number, path = tempfile.mkstemp(prefix=PREFIX)
        upload = Upload(check_content(name, content), (number, Path(path)), sys.maxsize)
        upload.fill(content)
        return upload

    async def attach_uploads(self, held: Held, uploads: Sequence[Upload]) -> None:
        try:
            for upload in uploads:
                await self.attach(held, upload.name, upload.path)
        finally:
            for upload in uploads:
                upload.discard()

    async def _put(self, path: str, data: object) -> Artifact:
        async with self.transport.stream("PUT", path, data) as response:
            view = msgspec.json.decode(await response.read(), type=ArtifactView)
        return Artifact(view.name, view.size)

    async def list_artifacts(
        self, reference: int | str, *, scope: str = "default"
    ) -> list[Artifact]:
        """Lists artifacts. There are none until the message completes or fails."""
        path = f"{message_path(reference)}/artifacts"
        view = await self.send("GET", path, gives=ArtifactsView, scope=scope)
        return [Artifact(each.name, each.size) for each in view.artifacts]

    async def read(self, reference: int | str, name: str, *, scope: str = "default") -> bytes:
        async with self._open(reference, name, scope) as response:
            return await response.read()

    async def download(
        self, reference: int | str, name: str, to: Path, *, scope: str = "default"
    ) -> None:
        """Downloads an artifact to a file."""
        async with self._open(reference, name, scope) as response:
            with to.open("wb") as file:
                async for piece in response.content.iter_chunked(CHUNK_BYTES):
                    file.write(piece)

    @asynccontextmanager
    async def _open(
        self, reference: int | str, name: str, scope: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        path = f"{message_path(reference)}/artifacts/{quote(check_name(name), safe='')}"
        async with self.transport.stream("GET", path, query={"scope": scope}) as response:
            yield response
