"""Deletes the output of shell jobs whose messages were pruned."""

import os
import shutil
from pathlib import Path
from typing import Protocol

from penstock.errors import Archived

INTERVAL_S = 300.0
BATCH_SIZE = 100


class MessageReader(Protocol):
    """The part of a store that the agent needs."""

    async def get(self, id: int) -> object: ...


class ShellOutputPruner:
    """Deletes output folders of archived messages. Safe in every worker at once."""

    name = "shell_output_pruner"
    every = INTERVAL_S

    def __init__(self, store: MessageReader, directory: Path) -> None:
        self.store = store
        self.directory = directory
        # The last id checked. It is reset to 0 at the end of a pass.
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
