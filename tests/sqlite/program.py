"""What a child process does with a store: it hears a command and says an answer, in turns."""

import asyncio
import os
import resource
import signal
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

from penstock import stores
from penstock.errors import PenstockError
from penstock.model.store_types import Claim, Entry
from penstock.store import Store
from penstock.stores.sqlite import connection
from penstock.stores.sqlite.database import read_system_clock
from penstock.stores.sqlite.store import open_sqlite
from penstock.stores.sqlite.transaction import SqliteTransaction
from penstock.stores.sqlite.writer import WriteTurns
from tests.sqlite.scenes import default_queue, publish

NOBODY = 65_534
CALLERS = 64


class Program:
    """Keeps what its commands opened until the process ends."""

    def __init__(self, line: Connection) -> None:
        self.line = line
        self.store: Store | None = None
        self.second: Store | None = None
        self.gate: WriteTurns | None = None

    async def serve(self) -> None:
        while True:
            try:
                command, *words = await asyncio.to_thread(self.line.recv)
            except EOFError:
                return
            self.line.send(await self.answer(command, *words))

    async def answer(self, command: str, *words: str) -> str:
        work: Callable[..., Awaitable[object]] = getattr(self, command)
        try:
            return f"{await work(*words)}"
        except PenstockError as error:
            return f"{error.code} {error}"
        except (OSError, sqlite3.Error) as error:
            return f"{type(error).__name__} {error}"

    async def open(self, url: str) -> str:
        self.store = await stores.open(url)
        return "open"

    async def open_again(self, url: str) -> str:
        """A second handle in the same process; the first stays in use."""
        self.second = await stores.open(url)
        return "open"

    async def close(self) -> str:
        assert self.store is not None
        await self.store.close()
        return "closed"

    async def publish(self, count: str = "1") -> str:
        assert self.store is not None
        ids = await publish(self.store, int(count))
        return " ".join(map(str, ids))

    async def flood(self, seconds: str) -> int:
        """Many callers publish for a while, as fast as they may; how many messages it was."""
        assert self.store is not None
        entry = Entry((await default_queue(self.store)).id, "test", b"")
        until = asyncio.get_running_loop().time() + float(seconds)
        callers = [repeat(self.store, entry, until) for _ in range(CALLERS)]
        return sum(await asyncio.gather(*callers))

    async def claim(self) -> str:
        assert self.store is not None
        queue = await default_queue(self.store)
        claimed = await self.store.claim(Claim((queue.id,), "child", 1_000))
        return " ".join(str(message.id) for message in claimed.messages)

    async def enter_gate(self, path: str) -> bool:
        self.gate = WriteTurns(path)
        return self.gate.enter()

    async def leave_gate(self) -> str:
        assert self.gate is not None
        self.gate.leave()
        return "left"

    async def stop_inside(self, path: str) -> str:
        """Publishes, and stops itself between BEGIN and COMMIT."""
        store = await open_sqlite(path)
        await store.database.write(self.stop_after_publishing)
        await store.close()
        return "finished"

    async def stop_migrating(self, path: str, at: str) -> str:
        """Makes a fresh file, and stops itself before a statement."""
        db = connection.connect(path, "safe")
        db.set_trace_callback(lambda statement: self.stop_at(at, statement))
        connection.set_up(db, read_system_clock, "safe")
        db.close()
        return "finished"

    async def umask(self, mask: str) -> str:
        os.umask(int(mask, 8))
        return "set"

    async def limit_file_size(self, size: str) -> str:
        """A write beyond it is an I/O error."""
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), most))
        return "set"

    async def become_nobody(self) -> str:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        return "done"

    async def stop_after_publishing(self, tx: SqliteTransaction) -> None:
        tx.execute("publish_message", (1, "half", 0, 0, tx.now, None, None, b"", None))
        self.stop()

    def stop_at(self, wanted: str, statement: str) -> None:
        if statement.lstrip().startswith(wanted):
            self.stop()

    def stop(self) -> None:
        self.line.send("inside")
        # To this thread: another one would let it run on for a moment.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


async def repeat(store: Store, entry: Entry, until: float) -> int:
    count = 0
    while asyncio.get_running_loop().time() < until:
        await store.enqueue([entry])
        count += 1
    return count


def run(line: Connection) -> None:
    asyncio.run(Program(line).serve())
