"""Names the extra that installs a missing library."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.errors import InvalidInput


class MissingExtra(InvalidInput, ImportError):
    """A library is not installed. The text names the extra of Penstock that installs it."""


@contextmanager
def require_extra(name: str) -> Iterator[None]:
    """Import what an extra installs inside this block."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "penstock":
            raise
        raise MissingExtra(f"{error}: install penstock[{name}]") from None
