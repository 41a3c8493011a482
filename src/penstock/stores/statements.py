"""Reads the SQL files of an engine into a dict of named statements."""

import os
import re
from importlib import import_module

from penstock.model.message import Flag

FILE = "statements.sql"
# A flag or a mask of flags by its name, for example {ENDING}.
MASK = re.compile(r"\{([A-Z_]+)\}")
NAMED = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


def load(package: str, tables: str = "penstock_") -> dict[str, str]:
    """Reads the shared statements, and those of the engine, which replace shared ones.

    `tables` is how names of tables begin in the engine.
    """
    shared = read_text("penstock.stores.sql", FILE).replace("penstock_", tables)
    return parse(shared) | parse(read_text(package, FILE))


def parse(text: str) -> dict[str, str]:
    masks = Flag.masks()
    text = MASK.sub(lambda found: str(masks[found[1]]), text)
    return {name: body.strip().removesuffix(";") for name, body in NAMED.findall(text)}


def read_text(package: str, *path: str) -> str:
    """Reads a package file without importlib.resources, whose import is a tenth of startup."""
    with open(os.path.join(find_folder(package), *path), encoding="utf-8") as file:
        return file.read()


def find_folder(package: str) -> str:
    return import_module(package).__path__[0]
