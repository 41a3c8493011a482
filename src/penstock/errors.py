"""The errors that Penstock raises, with their codes in HTTP and the CLI.

PenstockError
├── InvalidInput         INVALID_INPUT         an argument is invalid
│   ├── BodyTooLarge     BODY_TOO_LARGE
│   ├── Malformed        MALFORMED             invalid JSON or an invalid HTTP request
│   ├── RequestTimeout   REQUEST_TIMEOUT       the client did not send the whole request in time
│   ├── InvalidToken     INVALID_TOKEN         a lock token or cursor that this server did not issue
│   ├── FilterTooLarge   FILTER_TOO_LARGE      a filter beyond its limits
│   ├── FieldNotHere     FIELD_NOT_HERE        a filter field that this list or stream lacks
│   ├── SchemaMismatch   SCHEMA_MISMATCH       a body that does not match a schema of its queue
│   ├── StepTooLarge     STEP_TOO_LARGE        a step whose result cannot be stored
│   ├── WaitsForItself   WAITS_FOR_ITSELF      a child with a key of its parent
│   └── NotYet           NOT_YET               a feature that does not exist yet
├── Refused              REFUSED               valid, but not allowed now
│   ├── Unauthenticated  UNAUTHENTICATED       missing or invalid API key or token
│   ├── RateLimited      RATE_LIMITED          too many requests from one caller
│   ├── Forbidden        FORBIDDEN
│   │   └── FieldMasked  FIELD_MASKED          a masked field, without the right `reveal`
│   ├── MethodNotAllowed METHOD_NOT_ALLOWED    the path exists, but not for this HTTP method
│   ├── TooManyWaiting   TOO_MANY_WAITING      too many waiting claims, event streams or uploads
│   ├── TooManyBulks     TOO_MANY_BULKS        too many bulk actions of one tenant are active
│   ├── TooManyConnections  TOO_MANY_CONNECTIONS  the server is running out of file descriptors
│   ├── QueuePaused      QUEUE_PAUSED
│   ├── QueueDraining    QUEUE_DRAINING
│   ├── QueueArchived    QUEUE_ARCHIVED
│   ├── ScopePaused      SCOPE_PAUSED
│   ├── ScopeArchived    SCOPE_ARCHIVED
│   ├── NoSubscriber     NO_SUBSCRIBER         a broadcast queue without a subscription
│   ├── QueueFull        QUEUE_FULL
│   ├── SignalsFull      SIGNALS_FULL          too many signals that were not received yet
│   └── ChildRefused     CHILD_REFUSED         a message published by a wait or a step was refused
├── NotFound             NOT_FOUND             does not exist, or belongs to another tenant
│   ├── Archived         ARCHIVED              existed, and was deleted by retention
│   ├── ResultGone       RESULT_GONE           a run waited for it, and its result is gone
│   └── TokenExpired     TOKEN_EXPIRED         a callback URL after its expiry or its message's end
├── Conflict             CONFLICT              conflicts with the stored state
│   ├── LockLost         LOCK_LOST             the lease was lost to a newer claim
│   ├── AlreadySettled   ALREADY_SETTLED       the same settle call succeeded before
│   ├── InvalidState     INVALID_STATE         not possible in the current state
│   ├── AlreadyDecided   ALREADY_DECIDED       a person or the timeout has decided the human step
│   ├── NameTaken        NAME_TAKEN
│   ├── SlugConflict     SLUG_CONFLICT
│   ├── IdempotencyConflict  IDEMPOTENCY_CONFLICT
│   ├── SchemaIncompatible  SCHEMA_INCOMPATIBLE  the new version breaks the schema's compatibility
│   ├── TopologyChanged  TOPOLOGY_CHANGED      another request changed queues or rules meanwhile
│   └── Busy             BUSY                  locked by another transaction
├── CannotGovern         CANNOT_GOVERN         this process cannot evaluate the policy of a queue
├── IdentityUnavailable  IDENTITY_UNAVAILABLE  the identity provider does not answer
├── JobFailed            JOB_FAILED            the job ended without a result
│   └── JobCancelled     JOB_CANCELLED         the job was cancelled
└── StoreError           STORE_ERROR           the store failed
    ├── StoreBusy        STORE_BUSY            no write lock in time; retry
    ├── StoreUnreachable STORE_UNREACHABLE     the server is down or the connection broke; retry
    ├── StoreFull        STORE_FULL            no disk space left
    ├── StoreUnusable    STORE_UNUSABLE        cannot be opened
    │   └── StoreTooNew  STORE_TOO_NEW         written by a newer version of Penstock
    ├── StoreClosed      STORE_CLOSED
    └── OutcomeUnknown   OUTCOME_UNKNOWN       sent but not confirmed; it may have succeeded
"""

from typing import ClassVar


class PenstockError(Exception):
    """Base of all errors. `code` is stable, the text is for people."""

    code: ClassVar[str] = "PENSTOCK_ERROR"
    # Pairs of field and problem, if known.
    details: tuple[tuple[str, str], ...] = ()


class InvalidInput(PenstockError):
    code = "INVALID_INPUT"


class BodyTooLarge(InvalidInput):
    code = "BODY_TOO_LARGE"


class Malformed(InvalidInput):
    code = "MALFORMED"


class RequestTimeout(InvalidInput):
    code = "REQUEST_TIMEOUT"


class InvalidToken(InvalidInput):
    code = "INVALID_TOKEN"


class FilterTooLarge(InvalidInput):
    code = "FILTER_TOO_LARGE"


class FieldNotHere(InvalidInput):
    code = "FIELD_NOT_HERE"


class SchemaMismatch(InvalidInput):
    code = "SCHEMA_MISMATCH"


class StepTooLarge(InvalidInput):
    code = "STEP_TOO_LARGE"


class WaitsForItself(InvalidInput):
    code = "WAITS_FOR_ITSELF"


class NotYet(InvalidInput):
    code = "NOT_YET"


class Refused(PenstockError):
    code = "REFUSED"


class Unauthenticated(Refused):
    code = "UNAUTHENTICATED"


class RateLimited(Refused):
    code = "RATE_LIMITED"


class Forbidden(Refused):
    code = "FORBIDDEN"


class FieldMasked(Forbidden):
    code = "FIELD_MASKED"


class MethodNotAllowed(Refused):
    code = "METHOD_NOT_ALLOWED"


class TooManyWaiting(Refused):
    code = "TOO_MANY_WAITING"


class TooManyBulks(Refused):
    code = "TOO_MANY_BULKS"


class TooManyConnections(Refused):
    code = "TOO_MANY_CONNECTIONS"


class QueuePaused(Refused):
    code = "QUEUE_PAUSED"


class QueueDraining(Refused):
    code = "QUEUE_DRAINING"


class QueueArchived(Refused):
    code = "QUEUE_ARCHIVED"


class ScopePaused(Refused):
    code = "SCOPE_PAUSED"


class ScopeArchived(Refused):
    code = "SCOPE_ARCHIVED"


class NoSubscriber(Refused):
    code = "NO_SUBSCRIBER"


class QueueFull(Refused):
    code = "QUEUE_FULL"


class SignalsFull(Refused):
    code = "SIGNALS_FULL"


class ChildRefused(Refused):
    """A message that a wait or a step publishes was refused. Nothing was written."""

    code = "CHILD_REFUSED"

    # Set by stores. Clients rebuild the error from its text alone.
    place = 0
    refused = ""

    @classmethod
    def at(cls, place: int, refused: str) -> "ChildRefused":
        error = cls(f"child {place + 1} was refused: {refused}")
        error.place, error.refused = place, refused
        return error


class NotFound(PenstockError):
    code = "NOT_FOUND"


class Archived(NotFound):
    code = "ARCHIVED"


class ResultGone(NotFound):
    """A run asks for the result of a message that it waited for, and it is no longer stored."""

    code = "RESULT_GONE"


class Conflict(PenstockError):
    code = "CONFLICT"


class LockLost(Conflict):
    code = "LOCK_LOST"


class AlreadySettled(Conflict):
    code = "ALREADY_SETTLED"


class TokenExpired(NotFound):
    code = "TOKEN_EXPIRED"


class InvalidState(Conflict):
    code = "INVALID_STATE"


class AlreadyDecided(Conflict):
    code = "ALREADY_DECIDED"


class NameTaken(Conflict):
    code = "NAME_TAKEN"


class SlugConflict(Conflict):
    code = "SLUG_CONFLICT"


class IdempotencyConflict(Conflict):
    code = "IDEMPOTENCY_CONFLICT"


class SchemaIncompatible(Conflict):
    code = "SCHEMA_INCOMPATIBLE"


class TopologyChanged(Conflict):
    code = "TOPOLOGY_CHANGED"


class Busy(Conflict):
    code = "BUSY"


class CannotGovern(PenstockError):
    code = "CANNOT_GOVERN"


class IdentityUnavailable(PenstockError):
    code = "IDENTITY_UNAVAILABLE"


class JobFailed(PenstockError):
    code = "JOB_FAILED"


class JobCancelled(JobFailed):
    code = "JOB_CANCELLED"


class StoreError(PenstockError):
    code = "STORE_ERROR"


class StoreBusy(StoreError):
    code = "STORE_BUSY"


class StoreUnreachable(StoreError):
    code = "STORE_UNREACHABLE"


class StoreFull(StoreError):
    code = "STORE_FULL"


class StoreUnusable(StoreError):
    code = "STORE_UNUSABLE"


class StoreTooNew(StoreUnusable):
    code = "STORE_TOO_NEW"


class StoreClosed(StoreError):
    code = "STORE_CLOSED"


class OutcomeUnknown(StoreError):
    code = "OUTCOME_UNKNOWN"
