"""The stage every conformance test plays on, once for each kind of store."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.conformance.copies import Pair, open_pair
from tests.conformance.engines import ENGINES
from tests.conformance.stage import Stage
from tests.conformance.warm import Connections, close_connections

MEMORY = Path("/dev/shm")


@pytest.fixture
def directory() -> Iterator[Path]:
    """In memory where there is some: thousands of commits then wait for no disk."""
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        yield Path(name)


@pytest.fixture(scope="module")
async def connections() -> AsyncIterator[Connections]:
    """An async fixture: the tests of a module share its event loop, and so can connections."""
    made: Connections = {}
    yield made
    close_connections(made)


@pytest.fixture(params=ENGINES)
async def stage(
    request: pytest.FixtureRequest, directory: Path, connections: Connections
) -> AsyncIterator[Stage]:
    engine = ENGINES[request.param](request, directory)
    async with AsyncExitStack() as handles:
        handles.callback(engine.close)
        store = await handles.enter_async_context(engine.open_warm(connections))
        yield Stage(engine, store, handles)


@pytest.fixture(params=["from", "to"])
async def pair(request: pytest.FixtureRequest, stage: Stage) -> AsyncIterator[Pair]:
    async with open_pair(stage, request.param) as made:
        yield made
