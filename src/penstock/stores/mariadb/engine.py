"""Where the work of a MariaDB store runs: on one of a few connections, each call with an end."""

from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from penstock.errors import InvalidInput, NotYet, OutcomeUnknown, PenstockError
from penstock.message import Moment
from penstock.store import Capabilities
from penstock.stores.handle import Handle
from penstock.stores.mariadb.address import Address
from penstock.stores.mariadb.bell import Bell
from penstock.stores.mariadb.lookout import Watch
from penstock.stores.mariadb.pool import Pool
from penstock.stores.mariadb.session import DEADLINE, Outcome, Session
from penstock.stores.mariadb.statement import Raw, text_of
from penstock.stores.mariadb.transaction import Transaction
from penstock.stores.mariadb.trouble import (
    DUPLICATE,
    ERRORS,
    LOCK_WAIT,
    again,
    gone,
    named,
    number_of,
)

if TYPE_CHECKING:
    from penstock.stores.mariadb.wake import RedisWake

P = ParamSpec("P")
T = TypeVar("T")
Waiting: TypeAlias = "Watch | RedisWake"
Work: TypeAlias = Callable[Concatenate[Transaction, P], Coroutine[Any, Any, T]]
BEGIN = "START TRANSACTION"
BEGIN_READING = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;\nSTART TRANSACTION READ ONLY"
COMMIT, ROLLBACK = "COMMIT", "ROLLBACK"
ENTER = text_of("enter")
NOW = "SELECT @now"
# How often a transaction that met another one is tried again, and one that waited for it.
TRIES, WAITS = 10, 2


class Engine(Handle):
    def __init__(self, address: Address, seal: str) -> None:
        super().__init__(address.where)
        self.address = address
        # Which store this is, to whoever looks at a connection to it.
        self.seal = seal
        self.capabilities = Capabilities("mariadb", address.durability)
        self.pool = Pool(address.connect, address.pool_size, DEADLINE)
        self.bell = Bell(seal)
        self.waiters = waiters_of(address, seal, self.bell)
        # Every packet begins with the moment that all of it is at.
        self.clock = f"SELECT {address.moment} INTO @now"
        # Not that of the begin of its statement. Our own sessions have the time of UTC.
        self.moment = Raw(address.moment.replace("utc_timestamp", "sysdate"))

    async def let_go(self) -> None:
        await self.waiters.close()
        await self.pool.close()

    async def backup(self, path: str) -> None:
        raise NotYet(f"{self.where}: back it up with mariadb-dump --single-transaction")

    async def ask(self, *texts: str) -> list[Any]:
        """Reads; the rows of the last statement."""
        self.refuse_closed()
        try:
            async with self.pool.use() as session:
                return await session.rows(self.clock, *texts)
        except ERRORS as error:
            raise named(error, self.where) from error

    async def fetch(self, statement: str, /, **values: Any) -> list[Any]:
        return await self.ask(text_of(statement, **values))

    async def write_aside(self, statement: str, /, **values: Any) -> None:
        """By itself, if nobody is in the way."""
        await self.ask(
            f"SET STATEMENT innodb_lock_wait_timeout=0 FOR {text_of(statement, **values)}"
        )

    async def act(self, *texts: str, writes: bool = True) -> list[Outcome]:
        """One packet that is one transaction. `writes`: messages or history."""
        begin = (BEGIN, ENTER, self.clock) if writes else (BEGIN, self.clock)
        outcomes = await self.trying(lambda: self.act_once(*begin, *texts, COMMIT))
        return outcomes[len(begin) : -1]

    def ringing(self, queue_ids: Collection[int]) -> list[str]:
        """Where Redis carries wake-ups nobody listens."""
        return self.bell.ring(queue_ids) if self.address.wake is None else []

    async def act_once(self, *texts: str) -> list[Outcome]:
        self.refuse_closed()
        async with self.pool.use() as session:
            try:
                return await session.send(*texts)
            except ERRORS as error:
                await self.undo(session, error)
                if gone(error):
                    raise named(error, self.where, sent=True) from error
                raise

    async def undo(self, session: Session, error: BaseException) -> None:
        if not gone(error) and not isinstance(error, OutcomeUnknown):
            await session.send(ROLLBACK)

    async def trying(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Whole, again, as long as another transaction is in the way."""
        tries = waits = 0
        while True:
            try:
                return await call()
            except ERRORS as error:
                tries += 1
                waits += number_of(error) in (LOCK_WAIT, DUPLICATE)
                if not again(error) or tries == TRIES or waits == WAITS:
                    raise named(error, self.where) from error

    async def write(self, work: Work[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.trying(lambda: self.write_once(work, *args, **kwargs))

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
            raise named(error, self.where) from error

    @asynccontextmanager
    async def transaction(self, *begin: str) -> AsyncIterator[Transaction]:
        self.refuse_closed()
        async with self.pool.use() as session:
            try:
                ((now,),) = await session.rows(*begin, self.clock, NOW)
                tx = Transaction(session, now)
                yield tx
                await self.commit(tx, sent=ENTER in begin)
            except (PenstockError, *ERRORS) as error:
                await self.undo(session, error)
                raise

    async def commit(self, tx: Transaction, *, sent: bool) -> None:
        """Of everything before it we know, without an answer, that it did not happen."""
        try:
            await tx.send(*self.ringing(tx.woken), COMMIT)
        except ERRORS as error:
            if gone(error):
                raise named(error, self.where, sent=sent) from error
            raise

    async def now(self) -> Moment:
        moment: Moment = (await self.ask(NOW))[0][0]
        return moment


def waiters_of(address: Address, seal: str, bell: Bell) -> Waiting:
    if address.wake is None:
        return Watch(address.connect, bell)
    try:
        from penstock.stores.mariadb.wake import RedisWake
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{error}: install penstock[redis]") from None
    return RedisWake(address.connect, address.wake, seal, bell)
