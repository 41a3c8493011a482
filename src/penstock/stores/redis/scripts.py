"""Loads the Lua scripts, named after the verbs, each with the libraries it includes.

A script declares the keys it touches and gets all of them in KEYS: a server that runs scripts in
parallel serializes those that share a key.
"""

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import NamedTuple

from penstock.model.message import Flag

FOLDER = files(__package__) / "lua"
DIRECTIVE = re.compile(r"^-- (keys|with): (.+)$", re.MULTILINE)
# These scripts are idempotent.
READS = frozenset({
    "awaited_results", "census", "depths", "diagnose", "documents", "dump", "edges", "explain",
    "feed", "find", "find_aging", "find_dead", "get", "headings", "heads", "leases", "peek",
    "result", "scan", "seen", "signals", "steps", "wait_facts", "waiting_since", "torn_waits",
})  # fmt: skip


class Script(NamedTuple):
    text: bytes
    digest: bytes
    keys: tuple[str, ...]
    writes: bool
    # Its result comes with the queues that have new work.
    wakes: bool


class ScriptPart(NamedTuple):
    text: str
    keys: tuple[str, ...]
    library: tuple[str, ...]


@cache
def load_script(verb: str) -> Script:
    own = load_part(f"{verb}.lua")
    parts = [*load_library("base", *own.library), own]
    keys = tuple(dict.fromkeys(key for each in parts for key in each.keys))
    named = f"local {', '.join(keys)} = {', '.join(f'KEYS[{n + 1}]' for n in range(len(keys)))}"
    text = "\n".join([named, name_flags(), *(each.text for each in parts)]).encode()
    digest = sha1(text, usedforsecurity=False).hexdigest().encode()
    return Script(text, digest, keys, verb not in READS, "return woke(" in own.text)


def name_flags() -> str:
    """Declares the flags and masks of tickets as they are in the model."""
    masks = Flag.masks()
    return f"local {', '.join(masks)} = {', '.join(map(str, masks.values()))}"


def load_library(*names: str) -> list[ScriptPart]:
    """Includes each library once, after those it depends on."""
    found: dict[str, ScriptPart] = {}
    for name in names:
        each = load_part(f"lib/{name}.lua")
        for below in load_library(*each.library):
            found.setdefault(below.text, below)
        found.setdefault(each.text, each)
    return list(found.values())


@cache
def load_part(path: str) -> ScriptPart:
    text = FOLDER.joinpath(path).read_text()
    said = {word: tuple(names.split()) for word, names in DIRECTIVE.findall(text)}
    return ScriptPart(text, said.get("keys", ()), said.get("with", ()))
