"""HTTP clients: `Client` for asyncio code, `SyncClient` for synchronous code."""

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.extras import require_extra

if TYPE_CHECKING:
    from penstock.client.client import Client
    from penstock.client.sync import SyncClient

__all__ = ["Client", "SyncClient"]

HOMES = {"Client": "client", "SyncClient": "sync"}

# Hidden from type checkers, which would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports a client when it is first used: apps on a store need none."""
        if name not in HOMES:
            raise AttributeError(f"module 'penstock.client' has no attribute {name!r}")
        with require_extra("client"):
            module = import_module(f"{__name__}.{HOMES[name]}")
        value = globals()[name] = getattr(module, name)
        return value
