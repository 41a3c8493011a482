"""Maps the driver's errors to store errors."""

from redis import exceptions

from penstock.errors import (
    OutcomeUnknown,
    StoreBusy,
    StoreError,
    StoreFull,
    StoreUnreachable,
    StoreUnusable,
)

# Errors the driver may raise.
ERRORS = (exceptions.RedisError, OSError, TimeoutError)
# Errors after which the session is closed.
GONE = (exceptions.ConnectionError, exceptions.TimeoutError, OSError, TimeoutError)
# Matched in the server's message, which a script may wrap, or the driver's class name.
# The first match wins.
ERROR_TABLE: tuple[tuple[tuple[str, ...], type[StoreError], str], ...] = (
    (("READONLY", "ReadOnlyError"), StoreUnreachable,
     "is read-only (a replica, or a failover is in progress)"),
    (("MISCONF",), StoreFull, "cannot write to its disk"),
    (("OOM", "OutOfMemoryError"), StoreFull, "is out of memory"),
    (("LOADING", "BusyLoadingError", "MASTERDOWN", "MasterDownError", "ClusterDownError",
      "TryAgainError", "AskError", "max number of clients"), StoreUnreachable,
     "is not ready for commands"),
    (("NOAUTH", "WRONGPASS", "NOPERM", "invalid username", "invalid password"), StoreUnusable,
     "refused access"),
    (("BUSY",), StoreBusy, "is busy running a script; try again"),
    (("WRONGTYPE",), StoreUnusable, "holds keys of another type under this store's prefix"),
)  # fmt: skip
REFUSED = (exceptions.AuthenticationError, exceptions.NoPermissionError)


def is_connection_gone(error: BaseException) -> bool:
    refused = isinstance(error, (*REFUSED, exceptions.BusyLoadingError))
    return isinstance(error, GONE) and not refused


def translate_error(error: BaseException, where: str, *, sent: bool = False) -> StoreError:
    """Maps a driver error. `sent`: a change was sent and its answer may have been lost."""
    if isinstance(error, StoreError):
        return error
    text = " ".join(str(error).split()) or type(error).__name__
    words = f"{type(error).__name__} {text}"
    if isinstance(error, REFUSED):
        return StoreUnusable(f"{where} refused access: {text}")
    if is_connection_gone(error):
        if sent:
            return OutcomeUnknown(f"{where} did not answer; the change may have been made: {text}")
        return StoreUnreachable(f"{where} cannot be reached: {text}")
    for marks, kind, what in ERROR_TABLE:
        if any(mark in words for mark in marks):
            return kind(f"{where} {what}: {text}")
    return StoreError(f"{where}: {text}")
