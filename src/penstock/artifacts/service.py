"""The artifact storage of a store with its limits and threads."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

from penstock.artifacts.rules import ArtifactLimits, check_name
from penstock.artifacts.storage import ArtifactStorage
from penstock.artifacts.upload import CHUNK_BYTES, Content, Upload, check_content

T = TypeVar("T")
Source: TypeAlias = Content | AsyncIterable[bytes]
THREADS = 16


class ArtifactService:
    """The artifact storage of a store, its limits and its threads, for all tenants."""

    def __init__(self, storage: ArtifactStorage, limits: ArtifactLimits) -> None:
        self.storage = storage
        self.limits = limits
        # Separate threads, so that a slow bucket blocks nothing else.
        self.threads = ThreadPoolExecutor(THREADS, "penstock-artifacts")

    async def run(self, work: Callable[..., T], *given: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.threads, work, *given)

    def close(self) -> None:
        """Lets the threads end. It can be called more than once."""
        self.threads.shutdown(wait=False)

    def begin(self, name: str) -> Upload:
        return Upload(name, self.storage.begin(), self.limits.size)

    def spool(self, name: str, content: Content) -> Upload:
        """Uploads a file, blocking."""
        upload = self.begin(check_content(name, content))
        try:
            upload.fill(content)
        except BaseException:
            upload.discard()
            raise
        return upload

    async def receive(self, name: str, source: Source) -> Upload:
        if not isinstance(source, AsyncIterable):
            return await self.run(self.spool, name, source)
        upload = await self.run(self.begin, check_name(name))
        try:
            async for piece in join_pieces(source):
                await self.run(upload.write, piece)
            await self.run(upload.seal)
        except BaseException:
            await self.run(upload.discard)
            raise
        return upload

    async def discard(self, uploads: Sequence[Upload]) -> None:
        for upload in uploads:
            await self.run(upload.discard)


async def join_pieces(source: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Joins small pieces into large ones."""
    pieces: list[bytes] = []
    size = 0
    async for piece in source:
        pieces.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            yield b"".join(pieces)
            pieces, size = [], 0
    yield b"".join(pieces)
