"""Compiles and compares schemas in a child process with limits.

Comparing large schemas takes seconds and holds the GIL. The process is also this module's program.
"""

import asyncio
import sys
from typing import Any

import msgspec
from msgspec import Struct

from penstock.errors import InvalidInput, InvalidState
from penstock.model.schemas import Compatibility
from penstock.rules.schema_compat import Comparison, compare_versions
from penstock.rules.schemas import compile_schema

# The processor time of one check, after the interpreter has started.
MAX_CPU_S = 2
MAX_MEMORY_BYTES = 1_073_741_824
# Also covers a slow start of the interpreter on a busy machine.
MAX_WALL_S = 15.0
PROGRAM = (
    "import sys, json; request = json.load(sys.stdin); sys.path[:] = request['path'];"
    "from penstock.broker.schemas.process import run_child; run_child(request)"
)
encode = msgspec.json.Encoder().encode


class Compiled(Struct, frozen=True):
    """The first line of the child: why the schema cannot be used, or nothing."""

    error: str = ""
    pointer: str = ""


async def check_in_process(
    new: Any, old: Any | None = None, mode: Compatibility = "none"
) -> Comparison:
    """Refuses a schema that cannot be compiled in time, and compares it with an older version."""
    request = {"path": sys.path, "new": new, "old": old, "mode": mode}
    lines = (await run_process(encode(request))).splitlines()
    if not lines:
        raise InvalidInput(
            f"the schema takes more than {MAX_CPU_S} s or {MAX_MEMORY_BYTES >> 20} MB to compile"
        )
    compiled = msgspec.json.decode(lines[0], type=Compiled)
    if compiled.error:
        invalid = InvalidInput(compiled.error)
        invalid.details = ((compiled.pointer, compiled.error),)
        raise invalid
    if len(lines) < 2:
        return Comparison(unproven=("",))
    return msgspec.json.decode(lines[1], type=Comparison)


async def run_process(request: bytes) -> bytes:
    """Returns what the child wrote until it ended or was stopped."""
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        raise InvalidState(f"the process that checks schemas cannot be started: {error}") from None
    try:
        async with asyncio.timeout(MAX_WALL_S):
            written, _ = await child.communicate(request)
    except TimeoutError:
        raise InvalidState("the check of the schema did not end in time; try again") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return written


def run_child(request: dict[str, Any]) -> None:
    """Runs in the child: writes a line for the new schema, and one for the comparison."""
    limit_resources()
    try:
        compile_schema(request["new"])
    except InvalidInput as error:
        pointer = error.details[0][0] if error.details else ""
        write_line(Compiled(str(error), pointer))
        return
    write_line(Compiled())
    if request["old"] is None or request["mode"] == "none":
        write_line(Comparison())
    else:
        write_line(compare_versions(request["old"], request["new"], request["mode"]))


def limit_resources() -> None:
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + MAX_CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def write_line(line: Struct) -> None:
    sys.stdout.write(encode(line).decode() + "\n")
    sys.stdout.flush()
