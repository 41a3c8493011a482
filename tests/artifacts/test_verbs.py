"""Files attached to a message in hand, and seen when it has ended."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock import stores
from penstock.agents.artifact_pruner import ArtifactPruner
from penstock.artifacts.local import LocalArtifactStorage
from penstock.artifacts.rules import Artifact, ArtifactLimits, DeliveryPrefix
from penstock.artifacts.service import ArtifactService
from penstock.artifacts.storage import ArtifactStorage
from penstock.broker.local import Broker
from penstock.errors import (
    AlreadySettled,
    BodyTooLarge,
    Conflict,
    InvalidInput,
    InvalidState,
    LockLost,
    NotFound,
    PenstockError,
    Refused,
)
from penstock.model.message import Draft, Fail, Leased, Nack
from penstock.model.store_types import Lock, Retention

pytestmark = pytest.mark.anyio
LIMITS = ArtifactLimits(100, 3, 150)


@pytest.fixture
def folder(tmp_path: Path) -> LocalArtifactStorage:
    return LocalArtifactStorage(tmp_path / "files", "store")


@pytest.fixture
async def broker(folder: LocalArtifactStorage) -> AsyncIterator[Broker]:
    async with await stores.open("sqlite://") as store:
        yield Broker(store, artifact_service=ArtifactService(folder, LIMITS))


def another(broker: Broker, place: ArtifactStorage) -> Broker:
    """As another server on the same store and place has it."""
    return Broker(broker.store, artifact_service=ArtifactService(place, LIMITS))


async def take(broker: Broker, *, new: bool = True) -> Leased:
    if new:
        await broker.publish(Draft())
    (message,) = (await broker.claim("default", consumer="me")).messages
    return message


def uploads(folder: LocalArtifactStorage) -> list[str]:
    return folder.names(".uploads")


async def test_files_are_seen_when_the_message_has_completed(broker: Broker) -> None:
    message = await take(broker)
    kept = await broker.artifacts.attach(message, "a.txt", b"first")
    assert (kept, await broker.artifacts.list_artifacts(message.id)) == (Artifact("a.txt", 5), [])
    with pytest.raises(NotFound, match=r"no artifact named 'a\.txt'"):
        await broker.artifacts.read(message.id, "a.txt")
    await broker.complete(message)
    assert await broker.artifacts.list_artifacts(message.id) == [Artifact("a.txt", 5)]
    assert await broker.artifacts.read(message.id, "a.txt") == b"first"


async def test_a_file_comes_from_a_path_and_goes_to_one(broker: Broker, tmp_path: Path) -> None:
    message = await take(broker)
    (tmp_path / "from").write_bytes(b"of a disk")
    await broker.artifacts.attach(message, "a.txt", tmp_path / "from")
    await broker.settle(message, Fail("it is final"))
    await broker.artifacts.download(message.id, "a.txt", tmp_path / "to")
    assert (tmp_path / "to").read_bytes() == b"of a disk"


async def test_what_a_delivery_that_lost_has_attached_is_never_seen(broker: Broker) -> None:
    first = await take(broker)
    await broker.artifacts.attach(first, "lost.txt", b"old")
    await broker.settle(first, Nack(delay=0))
    second = await take(broker, new=False)
    with pytest.raises(LockLost):
        await broker.artifacts.attach(first, "a.txt", b"stale")
    await broker.artifacts.attach(second, "a.txt", b"new")
    with pytest.raises(LockLost):
        await broker.artifacts.attach(first, "a.txt", b"stale")
    await broker.complete(second)
    assert await broker.artifacts.list_artifacts(second.id) == [Artifact("a.txt", 3)]
    assert await broker.artifacts.read(second.id, "a.txt") == b"new"


async def test_an_ended_message_takes_no_more(broker: Broker, folder: LocalArtifactStorage) -> None:
    message = await take(broker)
    await broker.artifacts.attach(message, "a.txt", b"first")
    await broker.complete(message)
    for name in ("a.txt", "b.txt"):
        with pytest.raises(AlreadySettled):
            await broker.artifacts.attach(message, name, b"later")
    assert await broker.artifacts.read(message.id, "a.txt") == b"first"
    assert uploads(folder) == []


async def test_another_tenant_finds_neither_the_message_nor_its_files(broker: Broker) -> None:
    message = await take(broker)
    await broker.artifacts.attach(message, "a.txt", b"a")
    await broker.complete(message)
    stranger = Broker(broker.store, tenant="other", artifact_service=broker.artifacts.service)
    with pytest.raises(NotFound, match=f"no message with id {message.id}"):
        await stranger.artifacts.list_artifacts(message.id)
    with pytest.raises(NotFound, match=f"no message with id {message.id}"):
        await stranger.artifacts.read(message.id, "a.txt")
    assert await broker.artifacts.read(message.id, "a.txt") == b"a"


async def test_a_lock_that_nobody_gave_is_not_found(broker: Broker) -> None:
    for lock in (Lock(99, 1), Lock(-1, 1), Lock(2**70, 1)):
        with pytest.raises(NotFound):
            await broker.artifacts.attach(lock, "a.txt", b"a")


async def test_a_lease_that_was_lost_during_the_upload_shows_nothing(
    broker: Broker, folder: LocalArtifactStorage
) -> None:
    message = await take(broker)

    async def slow() -> AsyncIterator[bytes]:
        yield b"half"
        await broker.settle(message, Nack(delay=0))
        yield b"and half"

    with pytest.raises(PenstockError) as refused:
        await broker.artifacts.attach(message, "a.txt", slow())
    assert refused.value.code in ("LOCK_LOST", "INVALID_STATE")
    assert (uploads(folder), folder.owners(None, 9)) == ([], [])


async def test_an_upload_that_breaks_off_leaves_nothing(
    broker: Broker, folder: LocalArtifactStorage
) -> None:
    message = await take(broker)

    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await broker.artifacts.attach(message, "a.txt", broken())
    await broker.complete(message)
    assert (await broker.artifacts.list_artifacts(message.id), uploads(folder)) == ([], [])


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("d.txt", b"a", Refused),
        ("a.txt", bytes(101), BodyTooLarge),
        ("a.txt", bytes(100), BodyTooLarge),
        ("A.TXT", b"a", Conflict),
        ("../a.txt", b"a", InvalidInput),
        ("a.txt", "text", InvalidInput),
        ("a.txt", b"fits in", None),
    ],
    ids=["count", "size", "sum", "case", "name", "content", "none"],
)
async def test_what_is_past_a_limit_changes_nothing(
    broker: Broker,
    folder: LocalArtifactStorage,
    name: str,
    content: bytes,
    error: type[PenstockError] | None,
) -> None:
    message = await take(broker)
    for each in ("a.txt", "b.txt", "c.txt"):
        await broker.artifacts.attach(message, each, bytes(30))
    if error is None:
        await broker.artifacts.attach(message, name, content)
    else:
        with pytest.raises(error):
            await broker.artifacts.attach(message, name, content)
    await broker.complete(message)
    sizes = [each.size for each in await broker.artifacts.list_artifacts(message.id)]
    assert sizes == ([len(content), 30, 30] if error is None else [30, 30, 30])
    assert uploads(folder) == []


async def test_many_at_once_are_no_more_than_allowed(broker: Broker) -> None:
    message = await take(broker)
    tried = [broker.artifacts.attach(message, f"{n}.txt", bytes(20)) for n in range(20)]
    outcomes = await asyncio.gather(*tried, return_exceptions=True)
    assert sum(isinstance(each, Artifact) for each in outcomes) == LIMITS.count
    assert {type(each) for each in outcomes} == {Artifact, Refused}
    await broker.complete(message)
    assert len(await broker.artifacts.list_artifacts(message.id)) == LIMITS.count


class Meeting(LocalArtifactStorage):
    """Two servers both have looked before either puts its file there."""

    def __init__(self, like: LocalArtifactStorage, barrier: threading.Barrier) -> None:
        super().__init__(like.root, like.store)
        self.barrier = barrier

    def keep(self, upload: Path, shelf: DeliveryPrefix, name: str) -> None:
        self.barrier.wait(30)
        super().keep(upload, shelf, name)
        self.barrier.wait(30)


class Crossing(LocalArtifactStorage):
    """Notices two who put files there at once."""

    def __init__(self, like: LocalArtifactStorage) -> None:
        super().__init__(like.root, like.store)
        self.barrier = threading.Barrier(2)
        self.met = False

    def keep(self, upload: Path, shelf: DeliveryPrefix, name: str) -> None:
        try:
            self.barrier.wait(0.1)
            self.met = True
        except threading.BrokenBarrierError:
            self.barrier.reset()
        super().keep(upload, shelf, name)


async def test_one_server_puts_files_of_a_message_there_in_turn(
    broker: Broker, folder: LocalArtifactStorage
) -> None:
    message, crossing = await take(broker), Crossing(folder)
    server = another(broker, crossing)
    await asyncio.gather(*(server.artifacts.attach(message, name, b"a") for name in "abc"))
    assert not crossing.met


@pytest.mark.parametrize("names", [("c.txt", "d.txt"), ("c.txt", "C.txt")])
async def test_two_servers_together_keep_no_more_than_allowed(
    broker: Broker, folder: LocalArtifactStorage, names: tuple[str, str]
) -> None:
    message = await take(broker)
    given = ("a.txt", "b.txt") if names[1] == "d.txt" else ("a.txt",)
    for each in given:
        await broker.artifacts.attach(message, each, b"a")
    barrier = threading.Barrier(2)
    servers = [another(broker, Meeting(folder, barrier)) for _ in names]
    tried = [
        server.artifacts.attach(message, name, b"a")
        for server, name in zip(servers, names, strict=True)
    ]
    outcomes = await asyncio.gather(*tried, return_exceptions=True)
    assert not all(isinstance(each, Artifact) for each in outcomes)
    await broker.complete(message)
    kept = [each.name for each in outcomes if isinstance(each, Artifact)]
    found = [each.name for each in await broker.artifacts.list_artifacts(message.id)]
    assert found == sorted([*given, *kept])


async def test_without_a_place_it_is_said_how_to_name_one(tmp_path: Path) -> None:
    async with await stores.open("sqlite://") as store:
        broker = Broker(store)
        message = await take(broker)
        with pytest.raises(InvalidState, match="PENSTOCK_ARTIFACTS"):
            await broker.artifacts.attach(message, "a.txt", b"a")


async def swept(broker: Broker) -> int:
    """How many messages had files that nobody would see."""
    service = broker.artifacts.service
    sweeper = ArtifactPruner(broker.store, service, "me")
    wait = await sweeper.tick()
    assert wait == sweeper.every
    (run,) = [each for each in await broker.store.agent_runs() if each.name == sweeper.name]
    found = int((run.result or "").partition('"messages":')[2].partition(",")[0])
    return found


async def test_files_leave_with_their_message(broker: Broker, folder: LocalArtifactStorage) -> None:
    old, young = await take(broker), await take(broker)
    for message in (old, young):
        await broker.artifacts.attach(message, "a.txt", b"a")
    await broker.complete(old)
    assert await swept(broker) == 0
    queue = await broker.admin.queue("default")
    await broker.store.prune(Retention((queue.id,), await broker.store.now() + 1, 0))
    assert await swept(broker) == 1
    await broker.complete(young)
    assert await broker.artifacts.read(young.id, "a.txt") == b"a"
    assert [owner.id for owner in folder.owners(None, 9)] == [young.id]


async def test_files_of_deliveries_that_lost_are_swept(
    broker: Broker, folder: LocalArtifactStorage
) -> None:
    first = await take(broker)
    await broker.artifacts.attach(first, "a.txt", b"old")
    await broker.settle(first, Nack(delay=0))
    second = await take(broker, new=False)
    await broker.artifacts.attach(second, "a.txt", b"new")
    assert await swept(broker) == 1
    await broker.complete(second)
    assert await swept(broker) == 0
    assert await broker.artifacts.read(second.id, "a.txt") == b"new"


async def test_a_sweep_of_many_goes_on_where_it_was(
    broker: Broker, folder: LocalArtifactStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.agents.artifact_pruner.BATCH_SIZE", 2)
    for _ in range(5):
        message = await take(broker)
        await broker.artifacts.attach(message, "a.txt", b"a")
        await broker.settle(message, Nack(delay=99))
    sweeper = ArtifactPruner(broker.store, broker.artifacts.service, "me")
    waits = [await sweeper.tick() for _ in range(3)]
    assert waits == [1.0, 1.0, sweeper.every]
    assert folder.owners(None, 9) == []


async def test_an_empty_place_is_only_looked_at(broker: Broker) -> None:
    sweeper = ArtifactPruner(broker.store, broker.artifacts.service, "me")
    assert await sweeper.tick() == sweeper.every
    assert sweeper.name not in [run.name for run in await broker.store.agent_runs()]
