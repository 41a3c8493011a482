"""Removes the output of shell jobs whose messages have left the store."""

import os
import shutil
from pathlib import Path
from typing import Protocol

from penstock.errors import Archived

INTERVAL_S = 300.0
BATCH_SIZE = 100


class Messages(Protocol):
    """What it needs of a store."""

    async def get(self, id: int) -> object: ...


class ShellOutputPruner:
    """An agent: safe in every worker at once, for it only removes what nobody can ask for."""

    name = "shell_output_tidier"
    every = INTERVAL_S

    def __init__(self, store: Messages, directory: Path) -> None:
        self.store = store
        self.directory = directory
        # The last one looked at; the round begins anew when it comes to the end.
        self.after = 0

    async def tick(self) -> float:
        ids = sorted(id for id in list_job_folders(self.directory) if id > self.after)[:BATCH_SIZE]
        for id in ids:
            if await self.is_archived(id):
                shutil.rmtree(self.directory / str(id), ignore_errors=True)
        self.after = ids[-1] if len(ids) == BATCH_SIZE else 0
        return 0 if self.after else INTERVAL_S

    async def is_archived(self, id: int) -> bool:
        try:
            await self.store.get(id)
        except Archived:
            return True
        return False


def list_job_folders(directory: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(directory) if name.isdecimal()]
    except FileNotFoundError:
        return []
