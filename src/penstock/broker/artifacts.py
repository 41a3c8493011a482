"""Attaches files to claimed messages, and lists and reads those of finished ones."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from weakref import WeakValueDictionary

from penstock.artifacts.rules import (
    Artifact,
    DeliveryPrefix,
    check_apart,
    check_limits,
    check_name,
    expect_files,
    find_visible_prefix,
    merge_artifacts,
)
from penstock.artifacts.service import ArtifactService, Source
from penstock.artifacts.storage import ArtifactContent
from penstock.artifacts.upload import Content, Upload
from penstock.broker.consume import expect, settle_each
from penstock.broker.interfaces.broker import Held
from penstock.broker.messages import Admin
from penstock.errors import AlreadySettled, InvalidState, NotFound, PenstockError
from penstock.model.message import Record, Verb
from penstock.model.store_types import DONE, Answer, AnswerKind, Lock
from penstock.rules.validation import check_name as tenant_name
from penstock.rules.validation import clip
from penstock.store import Store

NO_STORAGE = "no artifact storage is configured; set Penstock(artifacts=...) or PENSTOCK_ARTIFACTS"


class Artifacts:
    """The artifacts of one tenant's messages."""

    def __init__(
        self, store: Store, admin: Admin, tenant: str, service: ArtifactService | None
    ) -> None:
        self.store = store
        self.admin = admin
        self.tenant = tenant
        self.given = service
        # Uploads in progress.
        self.uploads: dict[DeliveryPrefix, list[Artifact]] = {}
        self.turns: WeakValueDictionary[tuple[int, int], asyncio.Lock] = WeakValueDictionary()

    @property
    def service(self) -> ArtifactService:
        if self.given is None:
            raise InvalidState(NO_STORAGE)
        tenant_name("tenant", self.tenant)
        return self.given

    async def attach(self, held: Held, name: str, content: Source, *, size: int = 0) -> Artifact:
        """Durable when it returns, and seen when this delivery completes or fails the message.
        Under a name that was attached before it takes the place of the old. The message must have
        room for `size` bytes before any of the content is read."""
        check_name(name)
        await self.check_held(held)
        async with self.reserve(self.make_prefix(held), Artifact(name, size)):
            upload = await self.service.receive(name, content)
            await self.attach_uploads(held, [upload])
        return upload.artifact

    @asynccontextmanager
    async def reserve(self, prefix: DeliveryPrefix, new: Artifact) -> AsyncIterator[None]:
        """Counts an upload from its beginning, so that unfinished ones stay within the limits."""
        there = await self.service.run(self.service.storage.files, prefix)
        coming = [*self.uploads.get(prefix, ()), new]
        check_limits(expect_files(there, coming), self.service.limits)
        self.uploads[prefix] = coming
        try:
            yield
        finally:
            self.uploads[prefix].remove(new)
            if not self.uploads[prefix]:
                del self.uploads[prefix]

    def spool(self, name: str, content: Content) -> Upload:
        """Uploads a file to be attached later."""
        return self.service.spool(name, content)

    async def attach_uploads(self, held: Held, uploads: Sequence[Upload]) -> None:
        try:
            async with self.turn(held):
                await self.put(held, uploads)
        finally:
            await self.service.discard(uploads)

    @asynccontextmanager
    async def turn(self, *held: Held) -> AsyncIterator[None]:
        """Serializes attaching and completing with files within this process."""
        async with AsyncExitStack() as stack:
            for key in sorted({(each.id, each.fence) for each in held}):
                await stack.enter_async_context(self.turns.setdefault(key, asyncio.Lock()))
            yield

    async def put(self, held: Held, uploads: Sequence[Upload]) -> list[str]:
        """Stores all uploads or none, and returns the new names."""
        check_apart([upload.name for upload in uploads])
        await self.check_held(held)
        return await self.service.run(self._put, self.make_prefix(held), uploads)

    def _put(self, delivery_folder: DeliveryPrefix, uploads: Sequence[Upload]) -> list[str]:
        place, limits = self.service.storage, self.service.limits
        there = place.files(delivery_folder)
        check_limits(merge_artifacts(there, [upload.artifact for upload in uploads]), limits)
        known = {artifact.name for artifact in there}
        new = [upload.name for upload in uploads if upload.name not in known]
        try:
            for upload in uploads:
                place.keep(upload.path, delivery_folder, upload.name)
            if new:
                # Another server may have stored files meanwhile; at least one of both sees all.
                check_limits(place.files(delivery_folder), limits)
        except PenstockError:
            for name in new:
                place.remove(delivery_folder, name)
            raise
        return new

    async def take_back(self, held: Held, names: Sequence[str]) -> None:
        for name in names:
            await self.service.run(self.service.storage.remove, self.make_prefix(held), name)

    def make_prefix(self, held: Held) -> DeliveryPrefix:
        return DeliveryPrefix(self.tenant, held.id, held.fence)

    async def check_held(self, held: Held) -> None:
        """Raises unless the fence is the current one."""
        (answer,) = await settle_each((Lock(held.id, held.fence),), self._look)
        if answer.kind is AnswerKind.ALREADY:
            raise AlreadySettled(
                f"message {held.id} is settled; artifacts can no longer be attached"
            )
        expect(answer, held.id)

    async def _look(self, locks: Sequence[Lock]) -> list[Answer]:
        (lease,) = await self.store.leases(locks)
        return [DONE] if lease is not None else await self.store.explain(locks, [Verb.COMPLETE])

    async def list_artifacts(
        self, reference: int | str, *, scope: str = "default"
    ) -> list[Artifact]:
        """Lists the files of a completed or failed message. Others have none."""
        return await self.list_files(await self.admin.get(reference, scope=scope))

    async def list_files(self, record: Record) -> list[Artifact]:
        delivery_folder = find_visible_prefix(record, self.tenant)
        return (
            []
            if delivery_folder is None
            else await self.service.run(self.service.storage.files, delivery_folder)
        )

    async def open(self, record: Record, name: str) -> ArtifactContent:
        delivery_folder, reading = find_visible_prefix(record, self.tenant), None
        if delivery_folder is not None:
            reading = await self.service.run(
                self.service.storage.open, delivery_folder, check_name(name)
            )
        if reading is None:
            raise NotFound(f"no artifact named {clip(name)} of message {record.message.id}")
        return reading

    async def read(self, reference: int | str, name: str, *, scope: str = "default") -> bytes:
        reading = await self.open(await self.admin.get(reference, scope=scope), name)
        return b"".join([piece async for piece in self.stream_pieces(reading)])

    async def download(
        self, reference: int | str, name: str, to: Path, *, scope: str = "default"
    ) -> None:
        """Saves an artifact to a file."""
        reading = await self.open(await self.admin.get(reference, scope=scope), name)
        await self.service.run(write_all, reading, to)

    async def stream_pieces(self, reading: ArtifactContent) -> AsyncIterator[bytes]:
        try:
            while piece := await self.service.run(next, reading.pieces, b""):
                yield piece
        finally:
            reading.close()


def write_all(reading: ArtifactContent, to: Path) -> None:
    try:
        with to.open("wb") as file:
            for piece in reading.pieces:
                file.write(piece)
    finally:
        reading.close()
