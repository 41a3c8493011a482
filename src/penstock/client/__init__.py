"""HTTP clients: `Client` for asyncio code, `SyncClient` for synchronous code."""

from penstock.client.client import Client
from penstock.client.sync import SyncClient

__all__ = ["Client", "SyncClient"]
