"""What a server says, in our words: whether it was done must never be said wrongly."""

import pytest
from asyncpg import exceptions

from penstock.errors import OutcomeUnknown, StoreBusy, StoreError, StoreUnreachable
from penstock.stores.postgres.connection import is_harmless
from penstock.stores.postgres.errors import translate_error


def make_error(kind: type[exceptions.PostgresError], severity: str) -> exceptions.PostgresError:
    """As the driver makes it of the server's answer."""
    error = kind("said the server")
    error.severity_en = severity
    return error


# A server that gives up a session has many reasons to.
ENDINGS = (
    make_error(exceptions.AdminShutdownError, "FATAL"),
    make_error(exceptions.IdleInTransactionSessionTimeoutError, "FATAL"),
    make_error(exceptions.InternalServerError, "PANIC"),
    exceptions.ConnectionDoesNotExistError("closed in the middle"),
    exceptions.InternalClientError("another operation is in progress"),
    TimeoutError(),
)


@pytest.mark.parametrize("error", ENDINGS, ids=lambda error: type(error).__name__)
def test_an_ended_session_is_not_used_again_and_what_it_was_sent_is_unknown(
    error: Exception,
) -> None:
    assert not is_harmless(error)
    assert type(translate_error(error, "there", sent=True)) is OutcomeUnknown
    assert type(translate_error(error, "there")) is StoreUnreachable


def test_a_refused_statement_is_not_done_and_its_session_goes_on() -> None:
    locked = make_error(exceptions.LockNotAvailableError, "ERROR")
    wrong = exceptions.DataError("invalid input for query argument $1")
    assert is_harmless(locked)
    assert is_harmless(wrong)
    assert type(translate_error(locked, "there", sent=True)) is StoreBusy
    assert type(translate_error(wrong, "there", sent=True)) is StoreError
