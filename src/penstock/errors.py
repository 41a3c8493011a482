"""Every deliberate error, and the code each one has on the wire.

PenstockError
├── InvalidInput         INVALID_INPUT         the call makes no sense as given
│   ├── BodyTooLarge     BODY_TOO_LARGE
│   ├── Malformed        MALFORMED             not JSON, or not what HTTP allows
│   ├── RequestTimeout   REQUEST_TIMEOUT       the client stopped sending before the request ended
│   ├── InvalidToken     INVALID_TOKEN         a lock token or cursor that we did not give
│   └── NotYet           NOT_YET               asked for a feature that is not built
├── Refused              REFUSED               understood, and not allowed now
│   ├── Unauthenticated  UNAUTHENTICATED       no credential, or one that does not hold
│   ├── RateLimited      RATE_LIMITED          too many requests of one caller
│   ├── Forbidden        FORBIDDEN
│   ├── MethodNotAllowed METHOD_NOT_ALLOWED    the path is right, the HTTP method is not
│   ├── TooManyWaiting   TOO_MANY_WAITING      no room for another long poll or event stream
│   ├── TooManyConnections  TOO_MANY_CONNECTIONS  the server runs out of file descriptors
│   ├── QueuePaused      QUEUE_PAUSED
│   ├── QueueDraining    QUEUE_DRAINING
│   ├── QueueArchived    QUEUE_ARCHIVED
│   ├── ScopePaused      SCOPE_PAUSED
│   └── QueueFull        QUEUE_FULL
├── NotFound             NOT_FOUND             no such thing, or not yours
│   └── Archived         ARCHIVED              it was here; retention took it
├── Conflict             CONFLICT              it collides with what is stored
│   ├── LockLost         LOCK_LOST             another fence holds it now
│   ├── AlreadySettled   ALREADY_SETTLED       this very call was done before
│   ├── InvalidState     INVALID_STATE         its state does not allow that
│   ├── NameTaken        NAME_TAKEN
│   ├── SlugConflict     SLUG_CONFLICT
│   ├── IdempotencyConflict  IDEMPOTENCY_CONFLICT
│   └── Busy             BUSY                  somebody's open transaction holds the row
├── IdentityUnavailable  IDENTITY_UNAVAILABLE  whoever could say who calls does not answer
├── JobFailed            JOB_FAILED            a result was asked of a job that has none to give
│   └── JobCancelled     JOB_CANCELLED         and it was cancelled
└── StoreError           STORE_ERROR           the store, not the call
    ├── StoreBusy        STORE_BUSY            no write lock in time; try again
    ├── StoreUnreachable STORE_UNREACHABLE     not there now, or no longer; try again
    ├── StoreFull        STORE_FULL            no room on its disk
    ├── StoreUnusable    STORE_UNUSABLE        cannot be opened as it is
    │   └── StoreTooNew  STORE_TOO_NEW         written by a newer Penstock
    ├── StoreClosed      STORE_CLOSED
    └── OutcomeUnknown   OUTCOME_UNKNOWN       sent, not answered; may have happened
"""

from typing import ClassVar


class PenstockError(Exception):
    """The root. `code` is the wire word; the text names the thing it happened to."""

    code: ClassVar[str] = "PENSTOCK_ERROR"
    # What is the matter with which field, where that is known.
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


class MethodNotAllowed(Refused):
    code = "METHOD_NOT_ALLOWED"


class TooManyWaiting(Refused):
    code = "TOO_MANY_WAITING"


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


class QueueFull(Refused):
    code = "QUEUE_FULL"


class NotFound(PenstockError):
    code = "NOT_FOUND"


class Archived(NotFound):
    code = "ARCHIVED"


class Conflict(PenstockError):
    code = "CONFLICT"


class LockLost(Conflict):
    code = "LOCK_LOST"


class AlreadySettled(Conflict):
    code = "ALREADY_SETTLED"


class InvalidState(Conflict):
    code = "INVALID_STATE"


class NameTaken(Conflict):
    code = "NAME_TAKEN"


class SlugConflict(Conflict):
    code = "SLUG_CONFLICT"


class IdempotencyConflict(Conflict):
    code = "IDEMPOTENCY_CONFLICT"


class Busy(Conflict):
    code = "BUSY"


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
