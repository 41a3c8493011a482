"""A few sessions."""

from penstock.errors import OutcomeUnknown, PenstockError, StoreUnreachable
from penstock.stores import pool
from penstock.stores.mariadb.session import Session
from penstock.stores.mariadb.trouble import ERRORS, gone, read_only


class Pool(pool.Pool[Session]):
    def harmless(self, error: BaseException) -> bool:
        # Of one that may only read, another server may write by now: a new session finds it.
        if gone(error) or read_only(error) or isinstance(error, OutcomeUnknown | StoreUnreachable):
            return False
        return isinstance(error, (PenstockError, *ERRORS))

    async def leave(self, connection: Session) -> None:
        await connection.leave()
