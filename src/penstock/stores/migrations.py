"""Loads an engine's numbered migrations and checks those already applied."""

import os
import re
from hashlib import sha256

from msgspec import Struct

from penstock.errors import StoreTooNew, StoreUnusable
from penstock.stores.statements import find_folder, read_text

FLOOR = re.compile(r"^-- floor: (\d+)$", re.MULTILINE)


ONLINE = "\n-- online\n"


class Migration(Struct, frozen=True):
    """One numbered SQL file.

    `floor`: the oldest schema whose code may still write after it. The statements of an `online`
    migration run one by one, outside a transaction.
    """

    number: int
    name: str
    text: str
    checksum: str
    floor: int
    online: bool = False


def load(package: str) -> list[Migration]:
    found = os.listdir(os.path.join(find_folder(package), "migrations"))
    names = sorted(name for name in found if name.endswith(".sql"))
    return [read(name, read_text(package, "migrations", name)) for name in names]


def read(file_name: str, text: str) -> Migration:
    number, _, name = file_name.removesuffix(".sql").partition("_")
    floor = FLOOR.search(text)
    if floor is None:
        raise StoreUnusable(f"migration {file_name} does not declare its floor")
    checksum = sha256(text.encode()).hexdigest()
    return Migration(int(number), name, text, checksum, int(floor.group(1)), ONLINE in text)


def find_missing(known: list[Migration], applied: dict[int, str], floor: int) -> list[Migration]:
    """Returns the migrations to apply; raises if this version may not write to the store."""
    last = known[-1].number
    if floor > last:
        raise StoreTooNew(
            f"the store needs schema {floor} or newer, this version supports {last};"
            " upgrade Penstock"
        )
    for migration in known:
        checksum = applied.get(migration.number, migration.checksum)
        if checksum != migration.checksum:
            raise StoreUnusable(
                f"migration {migration.number} ({migration.name}) in the store differs from"
                " this version's; restore the store or use the version that created it"
            )
    return [migration for migration in known if migration.number not in applied]
