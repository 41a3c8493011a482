"""A few sessions."""

from penstock.errors import OutcomeUnknown, PenstockError, StoreUnreachable
from penstock.stores import pool
from penstock.stores.mariadb.session import MariaConnection
from penstock.stores.mariadb.trouble import ERRORS, is_connection_gone, is_read_only


class MariaPool(pool.ConnectionPool[MariaConnection]):
    def is_harmless(self, error: BaseException) -> bool:
        # Of one that may only read, another server may write by now: a new session finds it.
        if (
            is_connection_gone(error)
            or is_read_only(error)
            or isinstance(error, OutcomeUnknown | StoreUnreachable)
        ):
            return False
        return isinstance(error, (PenstockError, *ERRORS))

    async def leave(self, connection: MariaConnection) -> None:
        await connection.leave()
