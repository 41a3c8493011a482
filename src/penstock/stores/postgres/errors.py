"""What went wrong with the server, in our words."""

import asyncpg

from penstock.errors import (
    OutcomeUnknown,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnreachable,
    StoreUnusable,
)

# What the driver may raise.
ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
# Another transaction was in the way: the same again, from the start.
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
# In this order; the first that fits is told.
TOLD: tuple[tuple[tuple[type[BaseException], ...], type[StoreError], str], ...] = (
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
    ((asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError, *CONFLICT_ERRORS), StoreBusy,
     "was blocked by another transaction; try again"),
)  # fmt: skip


def is_connection_gone(error: BaseException) -> bool:
    """The session is over, even if its connection is not seen to be closed yet."""
    if isinstance(error, asyncpg.PostgresError) and error.severity_en in ("FATAL", "PANIC"):
        return True
    return isinstance(error, GONE)


def translate_error(error: BaseException, where: str, *, sent: bool = False) -> StoreError:
    """`sent`: it was asked to change something, and the answer may have been lost."""
    if isinstance(error, StoreError):
        return error
    # Hints and details come as lines of their own.
    text = " ".join(str(error).split()) or type(error).__name__
    for kinds, told, what in TOLD:
        if isinstance(error, kinds):
            return told(f"{where} {what}: {text}")
    if not is_connection_gone(error):
        return StoreError(f"{where}: {text}")
    if sent:
        return OutcomeUnknown(f"{where} did not answer; the change may have been made: {text}")
    return StoreUnreachable(f"{where} cannot be reached: {text}")
