"""Maps the driver's errors to store errors."""

from asyncmy.errors import InterfaceError, MySQLError

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
ERRORS = (MySQLError, OSError, TimeoutError)
DEADLOCK, LOCK_WAIT, CHANGED, DUPLICATE = 1213, 1205, 1020, 1062
# Conflicts with another transaction: retry from the start.
CONFLICT_ERRORS = frozenset({DEADLOCK, LOCK_WAIT, CHANGED, DUPLICATE})
# Broken connections: the driver's own error numbers, and the server's for those it ends.
DRIVER = range(2000, 3000)
ENDED = frozenset({0, 1053, 1077, 1158, 1159, 1160, 1161, 1184, 1927, 4031})
READ_ONLY = frozenset({1290, 1792, 1836})
# The first match wins.
ERROR_TABLE: tuple[tuple[frozenset[int], type[StoreError], str], ...] = (
    (READ_ONLY, StoreUnreachable,
     "is read-only (a replica, or a failover is in progress)"),
    (frozenset({1040, 1203, 1226}), StoreUnreachable, "accepts no connections now"),
    (frozenset({1044, 1045, 1049, 1130, 1142, 1143, 1227, 1370, 1698}), StoreUnusable,
     "refused access"),
    (frozenset({1054, 1146, 1305, 4091}), StoreUnusable,
     "has an incomplete schema; restore a backup or run penstock migrate"),
    (frozenset({1021, 1037, 1041, 1114, 28, 3}), StoreFull, "is out of disk space or memory"),
    (CONFLICT_ERRORS, TransactionConflict, "was blocked by another transaction; try again"),
    (frozenset({1317, 3024, 1969}), StoreBusy, "was blocked by another transaction; try again"),
)  # fmt: skip


def get_error_number(error: BaseException) -> int | None:
    """Returns the server's error number, or None."""
    if isinstance(error, MySQLError) and error.args and isinstance(error.args[0], int):
        return error.args[0]
    return None


def is_connection_gone(error: BaseException) -> bool:
    """True if the connection is broken."""
    if isinstance(error, OSError | TimeoutError | InterfaceError):
        return True
    number = get_error_number(error)
    return isinstance(error, MySQLError) and (number is None or number in DRIVER or number in ENDED)


def is_read_only(error: BaseException) -> bool:
    return get_error_number(error) in READ_ONLY


def is_conflict(error: BaseException) -> bool:
    return get_error_number(error) in CONFLICT_ERRORS


def translate_error(error: BaseException, where: str, *, sent: bool = False) -> StoreError:
    """Maps a driver error. `sent`: a change was sent and its answer may have been lost."""
    if isinstance(error, StoreError):
        return error
    text = " ".join(str(error).split()) or type(error).__name__
    if is_connection_gone(error):
        if sent:
            return OutcomeUnknown(f"{where} did not answer; the change may have been made: {text}")
        return StoreUnreachable(f"{where} cannot be reached: {text}")
    for numbers, kind, what in ERROR_TABLE:
        if get_error_number(error) in numbers:
            return kind(f"{where} {what}: {text}")
    return StoreError(f"{where}: {text}")
