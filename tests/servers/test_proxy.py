"""The proxy does to a connection what it says, and nothing more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import asyncpg
import pytest

from tests.servers.places import free_port
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy

pytestmark = pytest.mark.anyio

CAP = 30.0


class Echo:
    """Answers every line with itself, and remembers it."""

    def __init__(self) -> None:
        self.port = free_port()
        self.heard: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self.heard.append(line)
                writer.write(line)
        except ConnectionError:
            pass
        finally:
            writer.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, line: bytes) -> bytes:
        """The answer; nothing when the connection has ended."""
        self.writer.write(line)
        return await self.hear()

    async def hear(self) -> bytes:
        with anyio.fail_after(CAP):
            try:
                return await self.reader.readline()
            except ConnectionError:
                return b""


@asynccontextmanager
async def connect(proxy: Proxy) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    yield Client(reader, writer)
    writer.close()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    echo = Echo()
    async with await asyncio.start_server(echo.serve, "127.0.0.1", echo.port):
        yield echo


@pytest.fixture
async def proxy(echo: Echo) -> AsyncIterator[Proxy]:
    async with Proxy(echo.port) as proxy:
        yield proxy


async def test_what_is_said_arrives_and_so_does_the_answer(proxy: Proxy, echo: Echo) -> None:
    async with connect(proxy) as client:
        assert [await client.ask(b"one\n"), await client.ask(b"two\n")] == [b"one\n", b"two\n"]
    assert echo.heard == [b"one\n", b"two\n"]


async def test_a_cut_ends_every_connection_and_lets_new_ones_in(proxy: Proxy) -> None:
    async with connect(proxy) as one, connect(proxy) as two:
        await one.ask(b"one\n")
        await two.ask(b"two\n")
        proxy.cut()
        assert [await one.hear(), await two.hear()] == [b"", b""]
    async with connect(proxy) as third:
        assert await third.ask(b"three\n") == b"three\n"


async def test_a_cut_before_a_request_keeps_it_from_the_server(proxy: Proxy, echo: Echo) -> None:
    async with connect(proxy) as client:
        await client.ask(b"one\n")
        struck = proxy.cut_before_request()
        assert await client.ask(b"two\n") == b""
    assert struck.is_set()
    assert echo.heard == [b"one\n"]


async def test_a_cut_after_a_request_keeps_only_its_answer_back(proxy: Proxy, echo: Echo) -> None:
    async with connect(proxy) as client:
        struck = proxy.cut_after_request()
        assert await client.ask(b"one\n") == b""
    assert struck.is_set()
    assert echo.heard == [b"one\n"]


async def test_a_cut_waits_for_the_request_it_is_meant_for(proxy: Proxy, echo: Echo) -> None:
    struck = proxy.cut_after_request(containing=b"COMMIT")
    async with connect(proxy) as client:
        assert await client.ask(b"INSERT\n") == b"INSERT\n"
        assert not struck.is_set()
        assert await client.ask(b"COMMIT\n") == b""
    assert echo.heard == [b"INSERT\n", b"COMMIT\n"]


async def test_a_cut_happens_once(proxy: Proxy) -> None:
    proxy.cut_before_request()
    async with connect(proxy) as client:
        await client.ask(b"one\n")
    async with connect(proxy) as client:
        assert await client.ask(b"two\n") == b"two\n"


async def test_a_cut_waits_for_the_end_of_a_long_answer(proxy: Proxy, echo: Echo) -> None:
    struck = proxy.cut_after_request(answer=b"end")
    async with connect(proxy) as client:
        client.writer.write(b"begin\n")
        await until_heard(echo, 1)
        assert not struck.is_set()
        assert await client.ask(b"end\n") == b""
    assert struck.is_set()


async def test_lost_requests_leave_the_connection_open(proxy: Proxy, echo: Echo) -> None:
    async with connect(proxy) as client:
        await client.ask(b"one\n")
        proxy.lose("requests")
        client.writer.write(b"two\n")
        await until_lossy(proxy)
        assert echo.heard == [b"one\n"]
        assert not client.reader.at_eof()


async def test_lost_answers_are_those_of_requests_that_arrived(proxy: Proxy, echo: Echo) -> None:
    async with connect(proxy) as client:
        proxy.lose("answers")
        client.writer.write(b"one\n")
        await until_lossy(proxy)
        assert echo.heard == [b"one\n"]
        assert not client.reader.at_eof()


async def test_healing_cuts_what_lost_something_and_nothing_else(proxy: Proxy) -> None:
    async with connect(proxy) as hurt, connect(proxy) as whole:
        await whole.ask(b"one\n")
        proxy.lose()
        hurt.writer.write(b"two\n")
        await until_lossy(proxy)
        proxy.heal()
        assert await hurt.hear() == b""
        assert await whole.ask(b"three\n") == b"three\n"


async def test_a_refused_client_cannot_connect_and_an_old_one_stays(proxy: Proxy) -> None:
    async with connect(proxy) as old:
        await old.ask(b"one\n")
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", proxy.port)
        assert await old.ask(b"two\n") == b"two\n"
    await proxy.accept()
    async with connect(proxy) as new:
        assert await new.ask(b"three\n") == b"three\n"


async def test_a_delay_is_at_least_as_long_as_asked(proxy: Proxy) -> None:
    proxy.delay = 0.01
    async with connect(proxy) as client:
        began = anyio.current_time()
        assert await client.ask(b"one\n") == b"one\n"
        assert anyio.current_time() - began >= 2 * proxy.delay


async def test_a_client_of_a_server_that_is_down_is_cut_off() -> None:
    async with Proxy(free_port()) as proxy, connect(proxy) as client:
        assert await client.hear() == b""


@pytest.mark.parametrize(("fault", "rows"), [("before", 0), ("after", 1)])
async def test_a_commit_cut_off_has_happened_or_has_not(
    postgres_server: Postgres, fault: str, rows: int
) -> None:
    server = postgres_server
    with server.database() as url:
        async with Proxy(server.port) as proxy:
            connection = await asyncpg.connect(proxy.url(url))
            await connection.execute("CREATE TABLE thing (number int)")
            cut = proxy.cut_before_request if fault == "before" else proxy.cut_after_request
            struck = cut(containing=b"INSERT")
            with pytest.raises((ConnectionError, asyncpg.PostgresConnectionError)):
                await connection.execute("INSERT INTO thing VALUES (1)")
            assert struck.is_set()
        assert server.execute("SELECT count(*) FROM thing", url.rpartition("/")[2]) == str(rows)


def test_the_url_of_the_proxy_differs_only_in_its_port() -> None:
    proxy = Proxy(5432)
    url = "postgresql://user:secret@127.0.0.1:5432/name?ssl=1"
    assert proxy.url(url) == f"postgresql://user:secret@127.0.0.1:{proxy.port}/name?ssl=1"


async def until_heard(echo: Echo, count: int) -> None:
    with anyio.fail_after(CAP):
        while len(echo.heard) < count:  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(0.001)


async def until_lossy(proxy: Proxy) -> None:
    with anyio.fail_after(CAP):
        while not any(link.lossy for link in proxy.links):  # noqa: ASYNC110 - there is no event for it
            await anyio.sleep(0.001)
