"""Rules: what a file may be called, how many there may be, and which of them are seen."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from penstock.errors import BodyTooLarge, Conflict, InvalidInput, Refused
from penstock.model.message import Record, Verb
from penstock.rules.validation import clip, is_encodable

MAX_NAME_BYTES = 255
# Default limit of a file, in bytes.
MAX_FILE_BYTES = 104_857_600
DRIVE = re.compile(r"[A-Za-z]:")
DIVIDERS = frozenset("/\\")
DEVICES = frozenset(
    {"CON", "PRN", "AUX", "NUL", *(f"{port}{n}" for port in ("COM", "LPT") for n in range(10))}
)
# They write a name from right to left: what looks like a text ends with .exe.
TURNING = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
UNSEEN = frozenset({"Cc", "Zl", "Zp"})
# Verbs by which a consumer ends a message. Other ends show no file.
SHOWING = frozenset({Verb.COMPLETE, Verb.FAIL})


class Artifact(Struct, frozen=True):
    """A file of a message, in bytes."""

    name: str
    size: int


class ArtifactLimits(Struct, frozen=True):
    """Limits the size of a file, and the number and total size of the files of a message."""

    size: int
    count: int
    total: int


class DeliveryPrefix(Struct, frozen=True, order=True):
    """The prefix of files attached under one fence. Files of a lost delivery stay unseen."""

    tenant: str
    id: int
    fence: int


class MessagePrefix(Struct, frozen=True):
    """A message that has files."""

    tenant: str
    id: int


def make_limits(size: int = MAX_FILE_BYTES) -> ArtifactLimits:
    """Derives the limits from the largest file: ten times its size in 32 files per message."""
    return ArtifactLimits(size, 32, 10 * size)


def check_name(name: object) -> str:
    """Refuses names that some system reads as another file or as a path."""
    if (
        not isinstance(name, str)
        or not is_encodable(name)
        or not 0 < len(name.encode()) <= MAX_NAME_BYTES
    ):
        raise InvalidInput(f"artifact name {clip(name)} must have 1 to 255 bytes")
    if DIVIDERS & set(name) or DRIVE.match(name) or name[0] in ". " or name[-1] in ". ":
        raise InvalidInput(
            f"artifact name {clip(name)} must be a file name: no / or \\, no drive,"
            " no dot or space at either end"
        )
    if name.partition(".")[0].rstrip(" ").upper() in DEVICES:
        raise InvalidInput(f"artifact name {clip(name)} is a reserved device name on Windows")
    if any(unicodedata.category(each) in UNSEEN or each in TURNING for each in name):
        raise InvalidInput(f"artifact name {clip(name)} contains an invisible character")
    if unicodedata.normalize("NFC", name) != name:
        raise InvalidInput(f"artifact name {clip(name)} is not in Unicode normal form C")
    return name


def fold_name(name: str) -> str:
    """Returns the same text for names that some file system does not distinguish."""
    return unicodedata.normalize("NFC", name.casefold())


def merge_artifacts(there: Iterable[Artifact], new: Iterable[Artifact]) -> list[Artifact]:
    """Adds new artifacts. One with the same name replaces the old one."""
    return list({each.name: each for each in (*there, *new)}.values())


def expect_files(there: Iterable[Artifact], coming: Sequence[Artifact]) -> list[Artifact]:
    """Returns the files after all uploads have ended. Two uploads of one name both take space."""
    names = {each.name for each in coming}
    return [*(each for each in there if each.name not in names), *coming]


def check_limits(files: Sequence[Artifact], limits: ArtifactLimits) -> None:
    """Refuses files that exceed the limits of their message."""
    seen: dict[str, str] = {}
    for each in files:
        other = seen.setdefault(fold_name(each.name), each.name)
        if other != each.name:
            raise Conflict(f"{clip(each.name)} and {clip(other)} differ only in case")
    if len(files) > limits.count:
        raise Refused(f"a message can have at most {limits.count} artifacts")
    if sum(each.size for each in files) > limits.total:
        raise BodyTooLarge(
            f"the artifacts of a message can have at most {limits.total} bytes in total"
        )


def check_apart(names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise Conflict(f"artifact {clip(name)} is listed {count} times")


def find_visible_prefix(record: Record, tenant: str) -> DeliveryPrefix | None:
    """Returns the prefix of the delivery that ended the message."""
    last = record.timeline[-1] if record.timeline else None
    if last is None or last.verb not in SHOWING or last.fence is None:
        return None
    return DeliveryPrefix(tenant, record.message.id, last.fence)


def find_orphans(
    delivery_folders: Iterable[DeliveryPrefix], record: Record | None, tenant: str
) -> list[DeliveryPrefix]:
    """Finds files that stay invisible: their message is gone, or their delivery did not end it."""
    if record is None:
        return list(delivery_folders)
    kept = find_visible_prefix(record, tenant)
    over = {row.fence for row in record.timeline}
    return [
        delivery_folder
        for delivery_folder in delivery_folders
        if delivery_folder != kept and (record.state.final or delivery_folder.fence in over)
    ]
