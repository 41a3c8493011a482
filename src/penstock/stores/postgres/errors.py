"""Maps the driver's errors to store errors."""

import asyncpg

from penstock.errors import (
    OutcomeUnknown,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnreachable,
    StoreUnusable,
)
from penstock.stores.sql.database import TransactionConflict

# Errors the driver may raise.
ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
# Conflicts with another transaction: retry from the start.
CONFLICT_ERRORS = (
    asyncpg.DeadlockDetectedError,
    asyncpg.SerializationError,
    asyncpg.UniqueViolationError,
)
GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
# The first match wins.
ERROR_TABLE: tuple[tuple[tuple[type[BaseException], ...], type[StoreError], str], ...] = (
    ((asyncpg.ReadOnlySQLTransactionError,), StoreUnreachable,
     "is read-only (a replica, or a failover is in progress)"),
    ((asyncpg.CannotConnectNowError, asyncpg.TooManyConnectionsError), StoreUnreachable,
     "accepts no connections now"),
    ((asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError,
      asyncpg.InsufficientPrivilegeError), StoreUnusable, "refused access"),
    ((asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.UndefinedFunctionError,
      asyncpg.InvalidSchemaNameError), StoreUnusable,
     "has an incomplete schema; restore a backup or run penstock migrate"),
    ((asyncpg.DiskFullError, asyncpg.OutOfMemoryError), StoreFull,
     "is out of disk space or memory"),
    ((asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError), StoreBusy,
     "was blocked by another transaction; try again"),
    (CONFLICT_ERRORS, TransactionConflict, "was blocked by another transaction; try again"),
)  # fmt: skip


def is_connection_gone(error: BaseException) -> bool:
    """True if the session is over, even if its connection does not look closed yet."""
    if isinstance(error, asyncpg.PostgresError) and error.severity_en in ("FATAL", "PANIC"):
        return True
    return isinstance(error, GONE)


def translate_error(error: BaseException, where: str, *, sent: bool = False) -> StoreError:
    """Maps a driver error. `sent`: a change was sent and its answer may have been lost."""
    if isinstance(error, StoreError):
        return error
    # Joins the lines of hints and details.
    text = " ".join(str(error).split()) or type(error).__name__
    for kinds, kind, what in ERROR_TABLE:
        if isinstance(error, kinds):
            return kind(f"{where} {what}: {text}")
    if not is_connection_gone(error):
        return StoreError(f"{where}: {text}")
    if sent:
        return OutcomeUnknown(f"{where} did not answer; the change may have been made: {text}")
    return StoreUnreachable(f"{where} cannot be reached: {text}")
