"""A connection that a copy of the process leaves alone."""

import os
from typing import Any

import asyncpg


class PostgresConnection(asyncpg.Connection):
    """A forked child has copies of its parent's sessions, and shares what its loop watches them
    with: ending a copy, as Python does at the end, would make the parent deaf."""

    __slots__ = ("process",)

    def __init__(self, *parts: Any, **named_parts: Any) -> None:
        self.process = os.getpid()
        super().__init__(*parts, **named_parts)

    def terminate(self) -> None:
        if self.process == os.getpid():
            super().terminate()

    def __del__(self) -> None:
        if self.process == os.getpid():
            super().__del__()
