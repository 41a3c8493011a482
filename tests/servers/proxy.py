"""A TCP proxy before a server, for everything a network does wrong."""

import asyncio
import socket
import struct
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.servers.places import free_port

CHUNK = 2**16
HOST = "127.0.0.1"
# Closing sends a reset, not an orderly end.
ABORT = struct.pack("ii", 1, 0)


class Cut:
    """A cut that waits for its request; `struck` is set when it has happened."""

    def __init__(self, containing: bytes, answer: bytes | None) -> None:
        self.containing = containing
        self.answer = answer
        self.struck = asyncio.Event()


class Link:
    """One client, and the connection to the server made for it."""

    def __init__(
        self,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self.requests, self.to_client = client
        self.answers, self.to_server = server
        self.doom: Cut | None = None
        self.lossy = False

    def cut(self) -> None:
        for writer in (self.to_client, self.to_server):
            end = writer.get_extra_info("socket")
            # One that has ended by itself is closed already.
            if end.fileno() >= 0:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
            writer.transport.abort()

    def close(self) -> None:
        self.to_client.close()
        self.to_server.close()


class Proxy:
    """Passes everything on, until it is told otherwise."""

    def __init__(self, port: int, host: str = HOST) -> None:
        self.target = (host, port)
        self.port = free_port()
        # Seconds that each piece waits, in both directions.
        self.delay = 0.0
        self.links: set[Link] = set()
        self.cuts: list[Cut] = []
        self.lost: frozenset[str] = frozenset()
        self.listener: asyncio.Server | None = None
        # Pieces that clients sent.
        self.requests = 0

    async def __aenter__(self) -> Self:
        await self.accept()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.refuse()
        self.cut()

    def url(self, url: str) -> str:
        """The same place by way of this proxy."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}{HOST}:{self.port}").geturl()

    async def accept(self) -> None:
        if self.listener is None:
            self.listener = await asyncio.start_server(self.serve, HOST, self.port)

    def refuse(self) -> None:
        """New clients are refused; those that are connected stay."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def cut(self) -> None:
        """Every connection, now."""
        for link in self.links:
            link.cut()

    def cut_before_request(self, containing: bytes = b"") -> asyncio.Event:
        """The server never gets the next request. Set when it has happened."""
        return self.arm(Cut(containing, None))

    def cut_after_request(self, containing: bytes = b"", answer: bytes = b"") -> asyncio.Event:
        """The server gets the next request, and nobody its answer, which must contain `answer`."""
        return self.arm(Cut(containing, answer))

    def arm(self, cut: Cut) -> asyncio.Event:
        self.cuts.append(cut)
        return cut.struck

    def lose(self, *what: str) -> None:
        """Connections stay open, but `requests`, `answers` or both do not arrive, until heal()."""
        self.lost = frozenset(what or ("requests", "answers"))

    def heal(self) -> None:
        """All as at first. A connection that lost something is cut: it would talk nonsense."""
        self.lost, self.delay = frozenset(), 0.0
        self.cuts.clear()
        for link in self.links:
            if link.lossy:
                link.cut()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        link = Link((reader, writer), server)
        self.links.add(link)
        try:
            await self.carry(link)
        finally:
            self.links.discard(link)
            link.close()

    async def carry(self, link: Link) -> None:
        """Until either side ends."""
        ways = [asyncio.ensure_future(way(link)) for way in (self.send, self.answer)]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()

    async def send(self, link: Link) -> None:
        with suppress(ConnectionError):
            while chunk := await link.requests.read(CHUNK):
                self.requests += 1
                await self.pause()
                if cut := self.cut_for(chunk):
                    if cut.answer is None:
                        return self.strike(link, cut)
                    link.doom = cut
                await self.pass_on(link, "requests", chunk)

    async def answer(self, link: Link) -> None:
        with suppress(ConnectionError):
            while chunk := await link.answers.read(CHUNK):
                await self.pause()
                if (cut := link.doom) is None:
                    await self.pass_on(link, "answers", chunk)
                elif cut.answer is not None and cut.answer in chunk:
                    return self.strike(link, cut)

    async def pass_on(self, link: Link, what: str, chunk: bytes) -> None:
        if what in self.lost:
            link.lossy = True
            return
        writer = link.to_server if what == "requests" else link.to_client
        writer.write(chunk)
        await writer.drain()

    async def pause(self) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)

    def cut_for(self, request: bytes) -> Cut | None:
        for cut in self.cuts:
            if cut.containing in request:
                self.cuts.remove(cut)
                return cut
        return None

    def strike(self, link: Link, cut: Cut) -> None:
        link.cut()
        cut.struck.set()
