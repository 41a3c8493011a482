"""Runs transactions on a database server's connections. One loop retries conflicts."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeAlias, TypeVar

from penstock.errors import OutcomeUnknown, PenstockError, StoreBusy, StoreClosed, StoreError
from penstock.retry_policies import TRANSACTION, Retries
from penstock.store import Capabilities
from penstock.stores.notifier import NullNotifier
from penstock.stores.pool import Connection, ConnectionPool
from penstock.stores.sql.publish import StoreTransaction

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C", bound=Connection)
C_contra = TypeVar("C_contra", bound=Connection, contravariant=True)
Tx_co = TypeVar("Tx_co", bound=StoreTransaction, covariant=True)
Work: TypeAlias = Callable[Concatenate[Tx_co, P], Coroutine[Any, Any, T]]
# "briefly": with a short lock timeout, for writes that others queue behind.
Mode: TypeAlias = Literal["read", "write", "briefly"]
NO_VALUES: Mapping[str, Any] = {}


class TransactionConflict(StoreBusy):
    """The transaction lost against another one. Nothing was written; it may run again at once."""


class ServerDriver(Protocol[C_contra, Tx_co]):
    """Begins transactions, runs statements and maps errors for one driver."""

    errors: tuple[type[BaseException], ...]

    async def begin(self, connection: C_contra, mode: Mode) -> Tx_co: ...

    async def roll_back(self, connection: C_contra) -> None: ...

    def fetch(
        self, connection: C_contra, statement: str, values: Mapping[str, Any]
    ) -> Awaitable[list[Any]]:
        """Runs one statement outside a transaction."""

    def writes(self, statement: str) -> bool: ...

    def is_gone(self, error: BaseException) -> bool:
        """True if the connection is broken."""

    def is_conflict(self, error: BaseException) -> bool:
        """True if the transaction may run again from the start."""

    def translate(self, error: BaseException, *, sent: bool = False) -> StoreError:
        """Maps a driver error. `sent`: a change was sent and its answer may have been lost."""


class ServerDatabase(Generic[C, Tx_co]):
    """The pool, transactions and errors of a PostgreSQL or MariaDB store."""

    def __init__(
        self,
        where: str,
        capabilities: Capabilities,
        pool: ConnectionPool[C],
        driver: ServerDriver[C, Tx_co],
        notifier: NullNotifier,
    ) -> None:
        self.where = where
        self.capabilities = capabilities
        self.pool = pool
        self.driver = driver
        self.notifier = notifier
        self.loop = asyncio.get_running_loop()
        self.closed = False
        # After these a transaction is rolled back.
        self.failures: tuple[type[BaseException], ...] = (PenstockError, *driver.errors)

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            # If the loop is closed, its sockets are closed with it.
            if not self.loop.is_closed():
                await self.notifier.close()
                await self.pool.close()

    def refuse_closed(self) -> None:
        if self.closed:
            raise StoreClosed(f"{self.where} is closed")

    async def fetch(self, statement: str, values: Mapping[str, Any] = NO_VALUES) -> list[Any]:
        """Runs one statement outside a transaction."""
        self.refuse_closed()
        pool = self.pool
        connection = pool.take_idle() or await pool.take()
        try:
            return await self.driver.fetch(connection, statement, values)
        except BaseException as error:
            pool.drop_after(error, connection)
            if isinstance(error, self.driver.errors):
                sent = self.driver.writes(statement)
                raise self.driver.translate(error, sent=sent) from error
            raise
        finally:
            pool.give_back(connection)

    async def write(self, work: Work[Tx_co, P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs one write transaction, durable when it returns. Retries conflicts."""
        return await self.retry_conflicts(lambda: self.transact("write", work, *args, **kwargs))

    async def attempt(self, work: Work[Tx_co, P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a brief write transaction once, for a path with a loop of its own."""
        try:
            return await self.transact("briefly", work, *args, **kwargs)
        except self.driver.errors as error:
            raise self.driver.translate(error) from error

    async def read(self, work: Work[Tx_co, P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a read on one snapshot."""
        try:
            return await self.transact("read", work, *args, **kwargs)
        except self.driver.errors as error:
            raise self.driver.translate(error) from error

    look = read

    async def retry_conflicts(self, attempt: Callable[[], Awaitable[T]]) -> T:
        retries: Retries | None = None
        while True:
            try:
                return await attempt()
            except self.driver.errors as error:
                if self.driver.is_conflict(error):
                    retries = retries or TRANSACTION.begin()
                    if await retries.again():
                        continue
                raise self.driver.translate(error) from error

    async def transact(
        self, mode: Mode, work: Work[Tx_co, P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Runs one transaction. Errors are the driver's."""
        self.refuse_closed()
        async with self.pool.use() as connection:
            try:
                tx = await self.driver.begin(connection, mode)
                value = await work(tx, *args, **kwargs)
                await self.commit(connection, tx, sent=mode != "read")
            except self.failures as error:
                if not self.driver.is_gone(error) and not isinstance(error, OutcomeUnknown):
                    await self.driver.roll_back(connection)
                raise
        self.notifier.notify(tx.woken)
        return value

    async def commit(self, connection: C, tx: StoreTransaction, *, sent: bool) -> None:
        """Commits. Only here a lost answer leaves the outcome unknown."""
        try:
            await tx.commit()
        except self.driver.errors as error:
            if not self.driver.is_gone(error):
                raise
            connection.terminate()
            raise self.driver.translate(error, sent=sent) from error
