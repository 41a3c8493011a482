"""The body of a shell job."""

import msgspec
from msgspec import Struct

from penstock.errors import InvalidInput

# Variables that could load other code into the command.
REFUSED = ("LD_", "DYLD_", "PYTHON")


class ShellJob(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A string is run by /bin/sh, a list is executed directly."""

    command: str | list[str]
    env: dict[str, str] = {}
    cwd: str | None = None

    def __post_init__(self) -> None:
        if not self.command or not self.argv[0] or "\0" in "".join(self.argv):
            raise ValueError("command is empty or contains a NUL byte")
        for name, value in self.env.items():
            if name.startswith(REFUSED) or not name or "=" in name or "\0" in name + value:
                raise ValueError(f"env {name!r} may not be set")

    @property
    def argv(self) -> list[str]:
        return ["/bin/sh", "-c", self.command] if isinstance(self.command, str) else self.command


def read_job(body: bytes) -> ShellJob:
    try:
        return msgspec.json.decode(body, type=ShellJob)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"shell job: {error}") from None
