"""Runs transactions and packets on pooled connections, with retries and time limits."""

from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from penstock.errors import NotYet, OutcomeUnknown, PenstockError
from penstock.extras import require_extra
from penstock.model.message import Moment
from penstock.store import Capabilities
from penstock.stores.mariadb.connection import (
    DEADLINE,
    MariaConnection,
    MariaPool,
    StatementOutcome,
)
from penstock.stores.mariadb.dsn import MariaDsn
from penstock.stores.mariadb.errors import (
    DUPLICATE,
    ERRORS,
    LOCK_WAIT,
    get_error_number,
    is_conflict,
    is_connection_gone,
    translate_error,
)
from penstock.stores.mariadb.notifier import LocalWakeups, ReadyProbe
from penstock.stores.mariadb.statement import RawSql, fill_statement
from penstock.stores.mariadb.transaction import MariaTransaction
from penstock.stores.server_handle import ServerHandle

if TYPE_CHECKING:
    from penstock.stores.mariadb.redis_notifier import RedisPubSub

P = ParamSpec("P")
T = TypeVar("T")
Waiting: TypeAlias = "ReadyProbe | RedisPubSub"
Work: TypeAlias = Callable[Concatenate[MariaTransaction, P], Coroutine[Any, Any, T]]
BEGIN = "START TRANSACTION"
BEGIN_READING = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;\nSTART TRANSACTION READ ONLY"
COMMIT, ROLLBACK = "COMMIT", "ROLLBACK"
ENTER = fill_statement("enter")
NOW = "SELECT @now"
# Attempts after a deadlock, and after a lock timeout.
TRIES, WAITS = 10, 2


class MariaDatabase(ServerHandle):
    def __init__(self, address: MariaDsn, seal: str) -> None:
        super().__init__(address.where)
        self.address = address
        # Identifies the store, to check that a caller's connection is to the same one.
        self.seal = seal
        self.capabilities = Capabilities("mariadb", address.durability)
        self.pool = MariaPool(address.connect, address.pool_size, DEADLINE)
        self.wakeups = LocalWakeups(seal)
        self.waiters = make_waiters(address, seal, self.wakeups)
        # Every packet first reads the time that all its statements use.
        self.clock = f"SELECT {address.moment} INTO @now"
        # sysdate advances while a statement runs. It is UTC in our sessions.
        self.moment = RawSql(address.moment.replace("utc_timestamp", "sysdate"))

    async def let_go(self) -> None:
        await self.waiters.close()
        await self.pool.close()

    async def backup(self, path: str) -> None:
        raise NotYet(f"{self.where}: back it up with mariadb-dump --single-transaction")

    async def ask(self, *texts: str) -> list[Any]:
        """Reads and returns the rows of the last statement."""
        self.refuse_closed()
        try:
            async with self.pool.use() as session:
                return await session.rows(self.clock, *texts)
        except ERRORS as error:
            raise translate_error(error, self.where) from error

    async def fetch(self, statement: str, /, **values: Any) -> list[Any]:
        return await self.ask(fill_statement(statement, **values))

    async def write_aside(self, statement: str, /, **values: Any) -> None:
        """Runs one statement in autocommit mode; skips it if a row is locked."""
        await self.ask(
            f"SET STATEMENT innodb_lock_wait_timeout=0 FOR {fill_statement(statement, **values)}"
        )

    async def act(self, *texts: str, writes: bool = True) -> list[StatementOutcome]:
        """Runs one packet as one transaction. `writes`: it writes messages or history."""
        begin = (BEGIN, ENTER, self.clock) if writes else (BEGIN, self.clock)
        outcomes = await self.retry_conflicts(lambda: self.act_once(*begin, *texts, COMMIT))
        return outcomes[len(begin) : -1]

    def notify_statements(self, queue_ids: Collection[int]) -> list[str]:
        """Returns the statements that wake waiters; none if Redis carries wake-ups."""
        return self.wakeups.ring(queue_ids) if self.address.wake is None else []

    async def act_once(self, *texts: str) -> list[StatementOutcome]:
        self.refuse_closed()
        async with self.pool.use() as session:
            try:
                return await session.send(*texts)
            except ERRORS as error:
                await self.roll_back(session, error)
                if is_connection_gone(error):
                    raise translate_error(error, self.where, sent=True) from error
                raise

    async def roll_back(self, session: MariaConnection, error: BaseException) -> None:
        if not is_connection_gone(error) and not isinstance(error, OutcomeUnknown):
            await session.send(ROLLBACK)

    async def retry_conflicts(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Retries the whole transaction after a conflict with another."""
        tries = waits = 0
        while True:
            try:
                return await call()
            except ERRORS as error:
                tries += 1
                waits += get_error_number(error) in (LOCK_WAIT, DUPLICATE)
                if not is_conflict(error) or tries == TRIES or waits == WAITS:
                    raise translate_error(error, self.where) from error

    async def write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.retry_conflicts(lambda: self.write_once(work, *args, **kwargs))

    async def write_once(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self.transaction(BEGIN, ENTER) as tx:
            value = await work(tx, *args, **kwargs)
        self.waiters.tell(tx.woken)
        return value

    async def look(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.read(work, *args, **kwargs)

    async def read(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            async with self.transaction(BEGIN_READING) as tx:
                return await work(tx, *args, **kwargs)
        except ERRORS as error:
            raise translate_error(error, self.where) from error

    @asynccontextmanager
    async def transaction(self, *begin: str) -> AsyncIterator[MariaTransaction]:
        self.refuse_closed()
        async with self.pool.use() as session:
            try:
                ((now,),) = await session.rows(*begin, self.clock, NOW)
                tx = MariaTransaction(session, now)
                yield tx
                await self.commit(tx, sent=ENTER in begin)
            except (PenstockError, *ERRORS) as error:
                await self.roll_back(session, error)
                raise

    async def commit(self, tx: MariaTransaction, *, sent: bool) -> None:
        """Commits. Only here a lost answer leaves the outcome unknown."""
        try:
            await tx.send(*self.notify_statements(tx.woken), COMMIT)
        except ERRORS as error:
            if is_connection_gone(error):
                raise translate_error(error, self.where, sent=sent) from error
            raise

    async def now(self) -> Moment:
        moment: Moment = (await self.ask(NOW))[0][0]
        return moment


def make_waiters(address: MariaDsn, seal: str, wakeups: LocalWakeups) -> Waiting:
    if address.wake is None:
        return ReadyProbe(address.connect, wakeups)
    with require_extra("redis"):
        from penstock.stores.mariadb.redis_notifier import RedisPubSub
    return RedisPubSub(address.connect, address.wake, seal, wakeups)
